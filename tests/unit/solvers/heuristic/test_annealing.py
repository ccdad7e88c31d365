"""A metaheuristic with the same simulator."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.heuristic import annealing
from stagecut.planner.solvers.heuristic.annealing import Annealer
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, PLAIN_SCHEDULES, chain, job, one_device_per_server, one_server
from tests.property.strategies import problems

OPTIONS = SolveOptions(time_limit_s=None)


@pytest.fixture
def few_steps(monkeypatch):
    monkeypatch.setattr(annealing, "NUM_STEPS", 60)


def _problem():
    """5 layers on a fast and two slow devices, every plain schedule, two micro-batch sizes, any pipelines."""
    return Problem(
        model=chain(5, {"fast": 1.0, "slow": 2.0}),
        cluster=one_device_per_server("slow", "fast", "slow"),
        job=replace(job(8, pipelines=None), schedules=PLAIN_SCHEDULES, micro_batches=(1, 2)),
    )


@pytest.mark.parametrize("known", CATALOGUE, ids=lambda known: known.name)
def test_known_optimum_is_met(known):
    """The catalogue's problems are small enough for a random walk."""
    result = run(known.problem, "annealing", OPTIONS)
    if known.optimum_s is None:
        assert result.status is Status.NO_PLAN
    else:
        assert (result.status, result.objective_s) == (Status.FEASIBLE, known.optimum_s)


def test_same_seed_gives_the_same_search(few_steps):
    first, second = (run(_problem(), "annealing", OPTIONS) for _ in range(2))
    assert (first.plan, first.objective_s, first.counts) == (second.plan, second.objective_s, second.counts)


def test_seed_decides_the_search(few_steps):
    counts = {run(_problem(), "annealing", replace(OPTIONS, seed=seed)).counts for seed in range(4)}
    assert len(counts) > 1


def test_chain_stays_where_there_is_but_one_plan(few_steps):
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_server("gpu", 1), job=job(2))
    annealer = Annealer(Search(problem, OPTIONS), list(problem.variants))
    (start,) = annealer.starts()
    assert annealer.anneal(start).stops.tolist() == start.stops.tolist() == [1]


def test_worse_neighbours_are_left_behind_when_it_is_cold(monkeypatch):
    """At temperature 0 the chain never goes up: it ends no slower than it began."""
    monkeypatch.setattr(annealing, "HOT", 1e-300)
    monkeypatch.setattr(annealing, "COLD", 1e-300)
    monkeypatch.setattr(annealing, "NUM_STEPS", 60)
    annealer = Annealer(Search(_problem(), OPTIONS), list(_problem().variants))
    for start in annealer.starts():
        assert annealer.anneal(start).seconds <= start.seconds


@settings(max_examples=25)
@given(problems(max_layers=5))
def test_plans_are_legal(problem):
    search = Search(problem, OPTIONS)
    annealer = Annealer(search, list(problem.variants))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(annealing, "NUM_STEPS", 30)
        for start in annealer.starts()[:2]:
            annealer.anneal(start)
    assume(search.best_plan is not None)
    assert faults(CostModel(problem), search.best_plan) == ()


def test_plan_to_begin_from_is_taken_up(few_steps):
    best = run(_problem(), "brute-force", OPTIONS)
    assert run(_problem(), "annealing", OPTIONS, start=best.plan).objective_s == best.objective_s


def test_interleaved_plans_alone_are_refused():
    problem = Problem(
        model=chain(4, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(2, schedule=Schedule.INTERLEAVED)
    )
    with pytest.raises(UnsupportedError, match=r"annealing.*the job allows interleaved; allow gpipe or 1f1b"):
        run(problem, "annealing", OPTIONS)
