"""Plans that are improved one after another."""

import numpy as np

from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic import polish as polish_module
from stagecut.planner.solvers.heuristic.candidates import Candidate
from stagecut.planner.solvers.heuristic.local_search import simulated_times
from stagecut.planner.solvers.heuristic.polish import Polish
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import chain, job, one_device_per_server

FAST, SLOW = (PlacedGroup(placement=Placement(server_class=index, island=0), opens=True) for index in range(2))


def _searched():
    """6 layers on a device that takes 1 s for each and one that takes 2 s; 4 micro-batches."""
    cluster = one_device_per_server("fast", "slow")
    problem = Problem(model=chain(6, {"fast": 1.0, "slow": 2.0}), cluster=cluster, job=job(4))
    search = Search(problem, SolveOptions(time_limit_s=None))
    return search, StageTables(search.costs)


def _candidate(search, tables, groups, stops):
    sequence, cut = SequenceCosts(tables, search.problem.variants[0], groups), np.array(stops)
    (seconds,) = simulated_times(search, sequence, cut[None]).tolist()
    return seconds, Candidate(sequence=sequence, stops=cut, seconds=seconds)


def test_a_single_slow_device_becomes_the_best_plan():
    """All layers on the slow one: 48 s. Two stages of 4 s: (M + 1) x 4 = 20 s."""
    search, tables = _searched()
    polish = Polish(tables, [_candidate(search, tables, (SLOW,), (6,))])
    assert search.best_s == 48.0
    polish.improve_one(search)
    assert search.best_s == 20.0


def test_the_best_plan_comes_first_and_no_device_groups_come_twice(monkeypatch):
    search, tables = _searched()
    begun = []

    def change_groups(search, tables, sequence, stops, seconds):
        begun.append(sequence.groups)
        yield

    monkeypatch.setattr(polish_module, "change_groups", change_groups)
    candidates = [
        _candidate(search, tables, groups, stops)
        for groups, stops in (((SLOW, FAST), (2, 6)), ((FAST,), (6,)), ((FAST,), (6,)), ((SLOW,), (6,)))
    ]
    polish = Polish(tables, candidates[1:])
    for _ in range(5):
        polish.improve_one(search)
    assert begun == [(SLOW, FAST), (FAST,), (SLOW,)]


def test_pieces_go_from_plan_to_plan_and_wait_for_better_ones():
    search, tables = _searched()
    pieces = Polish(tables, []).pieces(search)
    next(pieces)
    assert search.best_plan is None
    _candidate(search, tables, (SLOW,), (6,))
    for _ in range(50):
        next(pieces)
    assert search.best_s == 20.0


def test_a_plan_is_left_when_a_better_one_comes_from_elsewhere(monkeypatch):
    search, tables = _searched()
    begun = []

    def change_groups(search, tables, sequence, stops, seconds):
        begun.append(sequence.groups)
        yield
        yield

    monkeypatch.setattr(polish_module, "change_groups", change_groups)
    pieces = Polish(tables, [_candidate(search, tables, (SLOW,), (6,))]).pieces(search)
    next(pieces)
    other = search.fork()
    _candidate(other, tables, (FAST,), (6,))
    search.follow(other)
    next(pieces)
    assert begun == [(SLOW,), (FAST,)]
