"""A heterogeneous chain whose optimum follows from a min-max argument, read from files.

Layers of 1, 1, 1, 3 and 1 units, 7 in all; a unit takes 1, 2 or 4 s (F + B) on the fast, the middle and
the slow device. M = 100 micro-batches; links and memories are unlimited.

A stage takes a whole number of seconds. If the slowest one takes 5 s or more, it works M x 5 = 500 s. If
all take at most 4 s, the devices hold at most 4, 2 and 1 units: 7, just what there is. So there are three
stages of 4 s each, of F = 1 and B = 3 s, as in (a b | c | d e) or (a b | c d | e), and

    T = (F + B)(S + M - 1) = 4 x 102 = 408 s

under 1F1B and under its eager form, by the fill row of the last stage (12 + 99 x 4), which never waits
once it has begun. GPipe takes 1 x 102 s forward and 3 x 102 s backward, which is as much.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.profile import read_profile
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import PLAIN_SCHEDULES

FILES = Path(__file__).parent / "data" / "known_optimum"
OPTIMUM_S = 408.0
UNITS = (1, 1, 1, 3, 1)
MOST_UNITS = {"first": 4, "second": 1, "third": 2}


@pytest.fixture(scope="module")
def problem():
    return Problem(
        model=read_profile(FILES / "profile.yaml"),
        cluster=read_cluster(FILES / "cluster.yaml"),
        job=read_job(FILES / "job.yaml"),
    )


def units_by_server(plan):
    return {stage.devices[0].split("/")[0]: sum(UNITS[stage.start : stage.stop]) for stage in plan.stages}


@pytest.mark.parametrize("schedule", PLAIN_SCHEDULES)
def test_milp_proves_the_optimum_under_every_schedule(problem, schedule):
    chosen = replace(problem, job=replace(problem.job, schedules=(schedule,)))
    result = run(chosen, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    assert result.status is Status.OPTIMAL
    assert result.objective_s == pytest.approx(OPTIMUM_S, rel=1e-12)
    assert result.bound_s == pytest.approx(OPTIMUM_S, rel=1e-9)
    assert units_by_server(result.plan) == MOST_UNITS


@pytest.mark.parametrize("solver", ["dp", "brute-force", "textbook-milp"])
def test_other_exact_solvers_find_it_too(problem, solver):
    """The row that proves it is one of the shared ones."""
    result = run(problem, solver, SolveOptions(gap=1e-6, time_limit_s=None))
    assert result.status is Status.OPTIMAL
    assert result.objective_s == pytest.approx(OPTIMUM_S, rel=1e-9)


def test_a_single_micro_batch_stays_on_the_fast_device(problem):
    """Nothing overlaps: 7 units of 1 s, and any of them elsewhere takes longer."""
    single = replace(problem, job=replace(problem.job, global_batch=1))
    result = run(single, "milp", SolveOptions(gap=0.0, time_limit_s=None))
    assert (result.status, result.objective_s) == (Status.OPTIMAL, pytest.approx(7.0, rel=1e-12))
    assert units_by_server(result.plan) == {"first": 7}
