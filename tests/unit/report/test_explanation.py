"""What binds in the plan of conftest.py, and what one more unit would bring, in words and trees."""

import io
import json

import pytest

from stagecut.planner.analysis.what_if import WhatIfOutcome
from stagecut.planner.core.result import Result, Status
from stagecut.planner.report.explanation import (
    binding_summary,
    binding_table,
    what_if_label,
    what_if_summary,
    what_if_table,
)
from stagecut.planner.report.text_table import print_table
from stagecut.planner.simulator.binding import what_binds


def outcome(objective_s, bound_s, *, unit="nic", planned_s=2.0):
    status = Status.FEASIBLE if objective_s else Status.NO_PLAN
    result = Result(status=status, solver="milp", seconds=1.0, objective_s=objective_s, bound_s=bound_s)
    return WhatIfOutcome(what="faster", unit=unit, planned_s=planned_s, result=result)


def lines_of(table):
    stream = io.StringIO()
    print_table(table, stream=stream)
    return stream.getvalue().splitlines()


@pytest.mark.parametrize(
    ("objective_s", "bound_s", "words"),
    [
        (1.5, 1.4, "saves 25.00 %, 30.00 % at most"),
        (1.5, None, "saves 25.00 %"),
        (2.0, 1.4, "nothing found, 30.00 % at most"),
        (2.0, None, "nothing found"),
        (2.0, 1.999, "saves nothing, proven, 0.05 % at most"),
        (2.0, 1.99998, "saves nothing, proven, 0.01 % at most"),
        (2.0, 2.0, "saves nothing, proven, 0.00 % at most"),
        (2.5, 1.4, "nothing as fast found: the cluster is divided differently"),
        (None, None, "no plan found"),
    ],
)
def test_what_a_unit_brings_is_put_into_words(objective_s, bound_s, words):
    """Shares of the 2 s that the plan takes; limits are rounded up."""
    assert what_if_label(outcome(objective_s, bound_s)) == words


def test_row_without_a_unit_tells_of_a_longer_search_only():
    assert what_if_label(outcome(2.0, 1.9, unit="")) == ""
    assert what_if_label(outcome(1.9, 1.9, unit="")) == "a longer search saves 5.00 %"


def test_row_has_time_speed_up_bound_and_gap():
    """2 / 1.6 = 1.25; (1.6 - 1.2) / 1.6 = 25 %."""
    (line,) = lines_of(what_if_table([outcome(1.6, 1.2)]))[2:]
    assert line.split()[:10] == ["faster", "1.6", "s", "1.250x", "1.2", "s", "25.00", "%", "1", "s"]


def test_tree_of_a_row_survives_json():
    tree = json.loads(json.dumps(what_if_summary(outcome(1.5, 1.4))))
    assert (tree["what"], tree["unit"], tree["objective_s"], tree["bound_s"]) == ("faster", "nic", 1.5, 1.4)
    assert (tree["saved_share"], tree["saved_share_at_most"]) == (0.25, pytest.approx(0.3))


def test_every_resource_has_a_row(plan, costs, timeline):
    """Stage 1 computes 12 of 16 s; 4 x 0.5 s of messages, all 4 of them on the critical path: see conftest.py."""
    rows = {line.split()[0]: line for line in lines_of(binding_table(plan, what_binds(costs, timeline)))[2:]}
    assert list(rows) == ["device", "bound", "link", "communication", "memory", "bubbles"]
    assert "a-1/0 (stage 1)" in rows["device"]
    assert "computes for 75.00 %" in rows["device"]
    assert "43.75 %" in rows["bubbles"]


def test_tree_says_what_binds(plan, costs, timeline):
    tree = json.loads(json.dumps(binding_summary(plan, what_binds(costs, timeline)), allow_nan=False))
    assert (tree["device"]["stages"], tree["device"]["devices"], tree["device"]["busy_share"]) == ([1], ["a-1/0"], 0.75)
    assert tree["memory"]["memory_share"] == tree["memory"]["memory_bytes"] / tree["memory"]["limit_bytes"]
    assert {link["busy_share"] for link in tree["links"]} == {1 / 16}
