"""`plan compare`."""

import pytest

from stagecut.planner.cli.commands import compare
from stagecut.planner.core.result import Result, Status
from stagecut.planner.core.units import format_seconds


def test_one_row_per_solver_in_the_order_given(plan_json, tiny):
    answer = plan_json("compare", *tiny, "--solvers", "even,milp,dp")
    rows = answer["results"]
    assert [row["solver"] for row in rows] == ["even", "milp", "dp"]
    assert {"solver", "status", "objective_s", "bound_s", "gap", "seconds"} <= rows[0].keys()
    assert (rows[0]["bound_s"], rows[0]["gap"]) == (None, None)
    assert rows[1]["times_best"] == 1.0
    assert rows[0]["times_best"] == pytest.approx(rows[0]["objective_s"] / rows[1]["objective_s"])
    assert answer["contradiction"] is None


def test_table_is_on_stdout(plan, tiny):
    done = plan("compare", *tiny, "--solvers", "greedy,even")
    assert done.exit_code == 0
    assert "x slower than best" in done.stdout
    assert done.stdout.index("greedy") < done.stdout.index("even")


def test_own_objectives_stand_below_the_table(plan, plan_json, tiny):
    alpa, even = plan_json("compare", *tiny, "--solvers", "alpa,even")["results"]
    assert (alpa["own_objective"]["name"], even["own_objective"]) == ("latency, s", None)
    shown = plan("compare", *tiny, "--solvers", "alpa,even").stdout
    assert f"alpa: own objective {format_seconds(alpa['own_objective']['value'])} (latency)" in shown
    assert "even: own objective" not in shown


def test_a_solver_that_cannot_express_the_problem_gets_a_row(plan, plan_json):
    """16 layers on 32 devices are too many plans to simulate them all."""
    problem = ("--model", "synthetic", "--cluster", "commodity-32", "--global-batch", 8, "--micro-batch", 2)
    refused, even = plan_json("compare", *problem, "--solvers", "brute-force,even")["results"]
    assert (refused["status"], refused["objective_s"]) == ("unsupported", None)
    assert "brute-force" in refused["message"]
    assert even["status"] == "feasible"
    done = plan("compare", *problem, "--solvers", "brute-force")
    assert done.exit_code == 5
    assert "brute-force: not applicable: " in done.stdout


def test_no_plan_at_all_has_the_code_of_its_reason(plan, tiny):
    """No micro-batch of 1, 2 or 4 samples can be split over three replicas."""
    assert plan("compare", *tiny, "--replicas", "3", "--solvers", "milp,even").exit_code == 4
    assert plan("compare", *tiny, "--replicas", "3", "--solvers", "even").exit_code == 5


def test_one_plan_is_enough(plan, tiny):
    assert plan("compare", *tiny, "--solvers", "even").exit_code == 0


def result(solver, *, objective_s=None, bound_s=None, status=Status.FEASIBLE):
    return Result(status=status, solver=solver, seconds=1.0, objective_s=objective_s, bound_s=bound_s)


@pytest.mark.parametrize(
    ("results", "words"),
    [
        ([], ""),
        ([result("a", objective_s=2.0, bound_s=2.0), result("b", objective_s=3.0, bound_s=1.0)], ""),
        ([result("a", objective_s=2.0, bound_s=2.0), result("b", objective_s=1.5)], "no plan takes less than 2.0 s"),
        ([result("a", status=Status.INFEASIBLE), result("b", objective_s=1.5)], "no plan fits, but b has one"),
        ([result("a", status=Status.INFEASIBLE), result("b", status=Status.NO_PLAN)], ""),
    ],
)
def test_solvers_that_exclude_each_other_are_told(results, words):
    found = compare.contradiction(results)
    assert words in found
    assert bool(found) == bool(words)


@pytest.mark.parametrize("solvers", ["", "milp,", "mlip", "even;milp"])
def test_unknown_solvers_are_wrong_usage(plan, tiny, solvers):
    done = plan("compare", *tiny, "--solvers", solvers)
    assert done.exit_code == 2
    assert "is not one of milp" in done.stderr
