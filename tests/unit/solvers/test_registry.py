"""Solvers by name."""

import json
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.core.messages.errors import BadInputError, FaultWarning, UnsupportedError
from stagecut.planner.core.result import Status, StopCause
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.registry import AUTO, MOST_STATES, PROVING, SOLVERS, load, run, solver_for
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from tests.catalogue import CATALOGUE

ROOT = Path(__file__).parents[3]
TESTED_APART = ("brute-force", "textbook-milp", "textbook-milp-cbc", "milp", "dp", "greedy", "even", "annealing")
"""Solvers with tests of their own on the known optima."""


@pytest.mark.parametrize("name", SOLVERS)
def test_every_name_leads_to_a_function(name):
    assert callable(load(name))


@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "textbook-milp-cbc"])
def test_result_carries_the_name_of_its_solver(name):
    assert run(CATALOGUE[0].problem, name, SolveOptions()).solver == name


@pytest.mark.parametrize("name", [name for name in SOLVERS if name != "textbook-milp-cbc"])
def test_exactly_the_proving_solvers_give_a_bound(name):
    result = run(CATALOGUE[0].problem, name, SolveOptions())
    assert (result.bound_s is not None) == (name in PROVING)


def test_misspelt_name_is_refused_with_the_nearest_one():
    with pytest.raises(BadInputError, match="unknown solver 'gready'; did you mean 'greedy'"):
        run(CATALOGUE[0].problem, "gready", SolveOptions())


def test_name_like_no_other_is_refused_with_all_of_them():
    with pytest.raises(BadInputError, match=r"unknown solver 'xyz' .*milp, dp, greedy"):
        load("xyz")


def test_observer_sees_the_history_of_the_result():
    seen = []
    result = run(CATALOGUE[0].problem, "even", SolveOptions(), observer=seen.append)
    assert tuple(seen) == result.history
    assert seen[-1].objective_s == result.objective_s


@pytest.mark.parametrize("name", ["even", "greedy", "dp", "milp", "brute-force"])
def test_search_never_ends_worse_than_its_start(name):
    problem = next(known.problem for known in CATALOGUE if known.optimum_s and known.problem.max_stages > 1)
    best = run(problem, "brute-force", SolveOptions())
    begun = run(problem, name, SolveOptions(), start=best.plan)
    assert begun.objective_s == best.objective_s
    assert begun.history[0].objective_s == best.objective_s


def exhaust(problem, search):
    """A solver that finds a plan and then asks for more memory than there is."""
    load("even")(problem, search)
    raise MemoryError


def test_solver_that_gets_no_more_memory_keeps_its_plan(monkeypatch):
    monkeypatch.setitem(SOLVERS, "hungry", f"{__name__}:exhaust")
    result = run(CATALOGUE[0].problem, "hungry", SolveOptions())
    assert (result.status, result.stopped_by, result.solver) == (Status.FEASIBLE, StopCause.MEMORY, "hungry")
    assert result.plan is not None


def fail(problem, search):
    """A solver that finds a plan and then fails."""
    load("even")(problem, search)
    raise AssertionError("cannot be")


def test_solver_that_fails_keeps_its_plan(monkeypatch):
    monkeypatch.setitem(SOLVERS, "weak", f"{__name__}:fail")
    with pytest.warns(FaultWarning, match="cannot be"):
        result = run(CATALOGUE[0].problem, "weak", SolveOptions())
    assert (result.status, result.stopped_by, result.solver) == (Status.FEASIBLE, StopCause.FAULT, "weak")
    assert result.plan is not None


def test_auto_is_milp_where_all_rows_count():
    assert solver_for(AUTO, CATALOGUE[0].problem) == "milp"
    assert solver_for("greedy", CATALOGUE[0].problem) == "greedy"


def test_auto_is_dp_for_the_shared_rows():
    assert solver_for(AUTO, CATALOGUE[0].problem, rows=RowChoice.SHARED) == "dp"


def test_auto_is_milp_for_schedules_that_dp_does_not_know():
    problem = CATALOGUE[0].problem
    interleaved = replace(problem, job=replace(problem.job, schedules=(Schedule.INTERLEAVED,)))
    assert solver_for(AUTO, interleaved, rows=RowChoice.SHARED) == "milp"


def test_auto_is_milp_where_labels_would_be_many():
    """A hundred hosts of one class: 101 counts of hosts opened."""
    problem = CATALOGUE[0].problem
    first, *others = problem.cluster.servers
    servers = (replace(first, count=MOST_STATES), *others)
    large = replace(problem, cluster=replace(problem.cluster, servers=servers))
    assert solver_for(AUTO, large, rows=RowChoice.SHARED) == "milp"


def test_no_solver_library_is_imported_before_a_solver_runs():
    code = "import json, sys, stagecut.planner.solvers.registry; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert set(json.loads(done.stdout)) & {"highspy", "pulp"} == set()


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
@pytest.mark.parametrize("name", ["brute-force", "textbook-milp", "milp", "dp"])
def test_exact_solver_finds_the_known_optimum(name, known):
    """OPTIMAL says that the bound is at most 1e-6 lower; it is above by no more than a solver's tolerance."""
    result = run(known.problem, name, SolveOptions(gap=1e-6))
    if known.optimum_s is None:
        assert result.status is Status.INFEASIBLE
        assert result.plan is None
    else:
        assert result.status is Status.OPTIMAL
        assert result.objective_s == known.optimum_s
        assert result.bound_s <= known.optimum_s * (1 + 1e-9)


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
@pytest.mark.parametrize("name", ["greedy", "even"])
def test_heuristic_never_beats_the_known_optimum(name, known):
    result = run(known.problem, name, SolveOptions())
    if known.optimum_s is None:
        assert result.status is Status.NO_PLAN
    else:
        assert result.status is Status.FEASIBLE
        assert result.objective_s >= known.optimum_s
        assert result.bound_s is None


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
@pytest.mark.parametrize("name", [name for name in SOLVERS if name not in TESTED_APART])
def test_planner_of_a_paper_never_beats_the_known_optimum(name, known):
    """The planner may refuse the problem in its own name, or find nothing though there is a plan."""
    try:
        result = run(known.problem, name, SolveOptions())
    except UnsupportedError as refusal:
        assert str(refusal).startswith(f"solver '{name}': ")
        return
    assert (result.solver, result.bound_s) == (name, None)
    assert result.status is (Status.NO_PLAN if result.plan is None else Status.FEASIBLE)
    if result.plan is not None:
        assert faults(CostModel(known.problem), result.plan) == ()
        assert result.objective_s >= known.optimum_s


@pytest.fixture
def endless(monkeypatch):
    """Solvers that never look at their budget, registered beside ours."""
    for name in ("solve_without_end", "proves_that_there_is_no_plan"):
        monkeypatch.setitem(SOLVERS, name, f"tests.unit.solvers.busy_solver:{name}")


@pytest.mark.parametrize(
    ("options", "status", "cause"),
    [
        ({"time_limit_s": 0.2}, Status.FEASIBLE, StopCause.TIME),
        ({"time_limit_s": None, "memory_limit_bytes": 1.0}, Status.NO_PLAN, StopCause.MEMORY),
    ],
)
def test_a_solver_that_ignores_its_limits_is_ended_with_what_it_has(endless, options, status, cause):
    """There is nothing if there is no memory from the start."""
    result = run(CATALOGUE[0].problem, "solve_without_end", SolveOptions(**options))
    assert (result.status, result.stopped_by) == (status, cause)
    assert (result.plan is None) == (status is Status.NO_PLAN)
    assert result.bound_s == (None if result.plan is None else pytest.approx(0.5 * result.objective_s))


def test_a_solver_that_ignores_ctrl_c_is_ended_with_what_it_has(endless):
    """Cancelled by the observer, at the first plan."""
    cancelled = threading.Event()
    options = SolveOptions(time_limit_s=None)
    problem = CATALOGUE[0].problem
    result = run(problem, "solve_without_end", options, observer=lambda _: cancelled.set(), cancelled=cancelled)
    assert (result.status, result.plan is None) == (Status.INTERRUPTED, False)


def test_a_proof_that_there_is_no_plan_outlives_the_interruption(endless):
    result = run(CATALOGUE[0].problem, "proves_that_there_is_no_plan", SolveOptions(time_limit_s=0.2))
    assert (result.status, result.plan) == (Status.INFEASIBLE, None)
