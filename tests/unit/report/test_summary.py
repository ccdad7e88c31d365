"""Results as trees for JSON."""

import dataclasses
import json
import math

import numpy as np

from stagecut.planner.core.result import HistoryPoint, Result, Shortage, Status
from stagecut.planner.report.summary import comparison_row, result_summary, simulation_summary

RESULT = Result(
    status=Status.FEASIBLE,
    solver="milp",
    seconds=2.5,
    objective_s=0.2,
    bound_s=0.15,
    row_bound_s=0.14,
    counts=(("nodes", 3),),
    history=(HistoryPoint(seconds=0.5, objective_s=0.2, bound_s=None),),
)


def test_summary_has_the_promised_keys():
    tree = result_summary(RESULT, plan={"schema": 1}, provenance={"seed": 0})
    promised = {"status", "objective_s", "bound_s", "gap", "solver", "seconds", "plan", "history", "provenance"}
    assert promised | {"schema", "row_bound_s", "counts"} <= tree.keys()
    assert tree["schema"] == 1


def test_summary_survives_json():
    """The gap is (0.2 - 0.15) / 0.2 = 0.25."""
    tree = result_summary(RESULT, plan={"stages": []}, provenance={"seed": 0})
    back = json.loads(json.dumps(tree, allow_nan=False))
    assert back == tree
    assert abs(back["gap"] - 0.25) < 1e-12
    assert back["counts"] == {"nodes": 3}
    assert back["history"] == [{"seconds": 0.5, "objective_s": 0.2, "bound_s": None}]


def test_infeasible_summary_carries_the_shortages():
    shortage = Shortage(device_type="t4", layers=(0, 3), needed_bytes=9.0, limit_bytes=6.0, remedy="recompute")
    result = Result(status=Status.INFEASIBLE, solver="dp", seconds=0.1, shortages=(shortage,))
    tree = json.loads(json.dumps(result_summary(result, plan=None, provenance={})))
    assert tree["plan"] is None
    assert tree["shortages"][0]["short_bytes"] == 3.0
    assert tree["shortages"][0]["layers"] == [0, 3]


def test_a_row_of_a_comparison_leaves_out_the_plan():
    row = comparison_row(RESULT)
    assert row["solver"] == "milp"
    assert row.keys() == {"solver", "status", "stopped_by", "fault", "objective_s", "bound_s", "gap", "seconds"}


def test_simulation_summary_repeats_the_timeline(played):
    """Expected times: conftest.py. Stage 1 keeps a micro-batch of 2 samples x 2 layers x 1 GB."""
    tree = json.loads(json.dumps(simulation_summary(played), allow_nan=False))
    assert tree["iteration_s"] == 16.0
    assert tree["bubble_fraction"] == 0.4375
    assert [stage["layers"] for stage in tree["stages"]] == [[0, 1], [1, 3]]
    assert [stage["strategy"] for stage in tree["stages"]] == ["-", "-"]
    assert [stage["memory"]["activations_bytes"] for stage in tree["stages"]] == [4e9, 4e9]
    assert [stage["transfer_s"] for stage in tree["stages"]] == [0.5, None]
    assert tree["critical_path"][0] == {"kind": "forward", "stage": 0, "samples": [0, 2], "start_s": 0.0, "end_s": 1.0}
    assert tree["critical_path"][-1]["end_s"] == 16.0


def test_unlimited_memory_is_null(played):
    unlimited = dataclasses.replace(played.costs, limit_bytes=np.array([math.inf, 8e9]))
    stages = simulation_summary(dataclasses.replace(played, costs=unlimited))["stages"]
    assert [stage["limit_bytes"] for stage in stages] == [None, 8e9]
