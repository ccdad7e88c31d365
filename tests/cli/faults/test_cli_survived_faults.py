"""Faults inside a search: the best plan and what is proven stand, and the user is told."""

import json

import highspy
import pytest

from stagecut.planner.core.messages.errors import FaultWarning

PROBLEM = ("--model", "vgg16", "--cluster", "mixed-server-8", "--global-batch", "32", "--quiet")
INTERLEAVED = (*PROBLEM, "--schedule", "interleaved", "--micro-batch", "4")
"""Whose proof is made of linear programs."""


@pytest.fixture
def failing_highs(monkeypatch):
    """HiGHS fails from its n-th run on; the runs, as they come."""
    real = highspy.Highs.run

    def install(number, fault):
        runs = []

        def run(self):
            runs.append(self)
            if len(runs) >= number:
                raise fault
            return real(self)

        monkeypatch.setattr(highspy.Highs, "run", run)
        return runs

    return install


@pytest.fixture(scope="module")
def unharmed(plan_json):
    """The answer without a fault, and how often HiGHS ran."""
    real, num_runs = highspy.Highs.run, 0

    def run(self):
        nonlocal num_runs
        num_runs += 1
        return real(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(highspy.Highs, "run", run)
        return plan_json("solve", *INTERLEAVED), num_runs


def test_plan_and_bound_survive_a_fault_of_the_solver_library(plan, failing_highs, unharmed):
    """What was found is not better than the optimum; what was proven not more, and no less the later the fault."""
    (optimum, num_runs), bounds_s = unharmed, []
    for number in (1, num_runs // 2, num_runs):
        failing_highs(number, RuntimeError("no more"))
        with pytest.warns(FaultWarning):
            done = plan("solve", *INTERLEAVED, "--json")
        assert done.exit_code == 0
        assert done.stderr == "Error: internal fault: RuntimeError: no more; run again with -v for the traceback\n"
        answer = json.loads(done.stdout)
        assert (answer["status"], answer["stopped_by"]) == ("feasible", "internal fault")
        assert answer["fault"] == "RuntimeError: no more"
        assert "when an internal fault ended the search" in answer["verdict"]
        assert optimum["objective_s"] <= answer["objective_s"]
        assert answer["plan"] is not None
        bounds_s.append(answer["bound_s"])
    assert bounds_s == sorted(bounds_s)
    assert 0 < bounds_s[0] <= bounds_s[-1] < optimum["bound_s"]


def test_highs_that_does_not_run_is_a_fault(plan, monkeypatch):
    monkeypatch.setattr(highspy.Highs, "run", lambda self: highspy.HighsStatus.kError)
    with pytest.warns(FaultWarning):
        done = plan("solve", *PROBLEM)
    assert done.exit_code == 0
    assert "HiGHS cannot use the program it was given: Not Set" in done.stderr
    assert "when an internal fault ended the search" in done.stdout


def test_fault_before_any_plan_is_no_plan_in_the_budget(plan, failing_highs):
    failing_highs(1, RuntimeError("no more"))
    with pytest.warns(FaultWarning):
        done = plan("solve", *PROBLEM, "--solver", "textbook-milp")
    assert done.exit_code == 5
    assert done.stdout == "no plan yet when an internal fault ended the search, and no proof that there is none\n"


@pytest.mark.parametrize("solver", ["hetpipe", "autopipe-h"])
def test_other_solvers_keep_their_plans_too(plan_json, failing_highs, solver):
    failing_highs(2, RuntimeError("no more"))
    with pytest.warns(FaultWarning):
        answer = plan_json("solve", *PROBLEM, "--solver", solver)
    assert answer["fault"] == "RuntimeError: no more"
    assert answer["plan"] is not None


def test_no_more_memory_is_a_limit(plan_json, failing_highs):
    failing_highs(60, MemoryError())
    answer = plan_json("solve", *PROBLEM)
    assert (answer["stopped_by"], answer["fault"]) == ("memory limit", None)
    assert answer["plan"] is not None


def test_verbose_shows_where(plan, failing_highs):
    failing_highs(20, RuntimeError("no more"))
    with pytest.warns(FaultWarning):
        done = plan("solve", *PROBLEM, "-v")
    assert "Traceback" in done.stderr
    assert "Error: internal fault: RuntimeError: no more\n" in done.stderr


def test_comparison_goes_on_with_the_other_solvers(plan, failing_highs):
    failing_highs(20, RuntimeError("no more"))
    with pytest.warns(FaultWarning):
        done = plan("compare", *PROBLEM, "--solvers", "milp,greedy", "--json")
    assert done.exit_code == 0
    assert done.stderr == "Error: internal fault: milp: RuntimeError: no more; run again with -v for the traceback\n"
    faults = {row["solver"]: row["fault"] for row in json.loads(done.stdout)["results"]}
    assert faults == {"milp": "RuntimeError: no more", "greedy": None}


def test_explanation_tells_which_search_failed(plan, plan_file, failing_highs):
    failing_highs(1, RuntimeError("no more"))
    with pytest.warns(FaultWarning):
        done = plan("explain", plan_file, "--what-if", "nic", "--quiet", "--json")
    assert done.exit_code == 0
    assert "internal fault: interfaces of every server twice as fast: RuntimeError: no more" in done.stderr
    assert json.loads(done.stdout)["what_if"][-1]["fault"] == "RuntimeError: no more"
