"""The driver of AutoDDL's comparison, and what it measured."""

import pytest

from benchmarks.harness.driver import Request
from benchmarks.papers.autoddl import DRIVER, PAGE, PROBLEMS, QUICK, STORED, WHOLE, faults, measure, tables
from benchmarks.report import pages, results

KEPT = results.read_kept("autoddl", DRIVER.jobs)


@pytest.fixture(scope="module")
def smoke():
    return measure(QUICK[0], Request(quick=True))


def test_searches_and_experts_are_measured_on_the_smoke_problem(smoke):
    assert faults(smoke) == []
    assert {"data parallel", "one weird trick", "Megatron", "FSDP"} <= set(smoke["experts"])
    assert smoke[STORED]["exact"]["iteration_s"] <= smoke[WHOLE]["exact"]["iteration_s"] * (1 + 1e-9)


def test_answers_below_a_bound_and_open_gaps_are_complained_of(smoke):
    """A bound twice as high as the optimum, and one half as high."""
    own = smoke[WHOLE]
    high = {**own, "bound_s": 2 * own["exact"]["iteration_s"]}
    assert "coordinate descent is below the bound (weights whole)" in faults({**smoke, WHOLE: high})
    low = {**own, "bound_s": own["exact"]["iteration_s"] / 2}
    assert faults({**smoke, WHOLE: low}) == ["the optimum is not proven (weights whole)"]


def test_all_problems_were_measured_without_complaint():
    assert list(KEPT) == [each.name for each in PROBLEMS]
    assert DRIVER.complaint(KEPT) == ""


def test_the_page_has_what_was_measured():
    text = PAGE.read_text(encoding="utf-8")
    for name, table in tables(KEPT)[PAGE].items():
        assert pages.table_in(text, name) == table
