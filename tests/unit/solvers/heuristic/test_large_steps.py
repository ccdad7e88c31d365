"""Random changes of device groups, each followed by a descent."""

import math
from itertools import islice

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.large_steps import Chain, LargeSteps
from stagecut.planner.solvers.heuristic.local_search import simulated_times
from stagecut.planner.solvers.heuristic.moves import random_change
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import chain, job, kinds, one_device_per_server, one_server

FAST, SLOW = (PlacedGroup(placement=Placement(server_class=index, island=0), opens=True) for index in range(2))


def _searched(seed=0):
    """6 layers on a device that takes 1 s for each and one that takes 2 s; 4 micro-batches."""
    cluster = one_device_per_server("fast", "slow")
    problem = Problem(model=chain(6, {"fast": 1.0, "slow": 2.0}), cluster=cluster, job=job(4))
    search = Search(problem, SolveOptions(time_limit_s=None, seed=seed))
    return search, StageTables(search.costs)


def _offer(search, tables, groups, stops):
    sequence = SequenceCosts(tables, search.problem.variants[0], groups)
    (seconds,) = simulated_times(search, sequence, np.array(stops)[None]).tolist()
    return seconds


def _taken(tables, search, num_pieces):
    for _ in islice(LargeSteps(tables).pieces(search), num_pieces):
        pass


@pytest.mark.parametrize("seed", range(5))
def test_a_single_slow_device_becomes_the_best_plan(seed):
    """All layers on the slow one: 48 s. Two stages of 4 s: (M + 1) x 4 = 20 s."""
    search, tables = _searched(seed)
    assert _offer(search, tables, (SLOW,), (6,)) == 48.0
    _taken(tables, search, 5)
    assert search.best_s == 20.0


def test_steps_wait_for_a_plan_and_go_on_from_a_better_one():
    search, tables = _searched()
    steps = Chain(tables, 0)
    steps.step(search)
    assert search.best_plan is None and steps.at is None
    _offer(search, tables, (SLOW,), (6,))
    steps.step(search)
    other = search.fork()
    _offer(other, tables, (SLOW, FAST), (2, 6))
    search.follow(other)
    steps.step(search)
    assert steps.at.sequence.groups == (SLOW, FAST)
    assert steps.at.seconds == search.best_s == 20.0


def test_device_groups_are_tried_once(monkeypatch):
    search, tables = _searched()
    _offer(search, tables, (SLOW,), (6,))
    tried = []
    monkeypatch.setattr(
        "stagecut.planner.solvers.heuristic.large_steps.min_max_stops",
        lambda sequence, leeway: tried.append(sequence.groups),
    )
    _taken(tables, search, 5)
    assert len(tried) == len(set(tried)) > 1


def test_slower_ends_are_accepted_by_how_much_slower_they_are():
    """The probability is exp(-1) at 0.004 of the time."""
    _, tables = _searched()
    steps = Chain(tables, 0)
    assert all(steps._accepts(slower_s, 10.0) for slower_s in (-1.0, 0.0))
    accepted = sum(steps._accepts(0.04, 10.0) for _ in range(4_000)) / 4_000
    assert accepted == pytest.approx(math.exp(-1), abs=0.03)


@pytest.mark.parametrize(("num_stages", "num_steps"), [(1, 10), (30, 10), (40, 5), (60, 2)])
def test_a_long_pipeline_takes_fewer_steps_at_once(num_stages, num_steps):
    """From 30 stages on by the third power: 10 x (30 / 40)^3 = 4.2, 10 / 8 = 1.25."""
    problem = Problem(model=chain(60, {"gpu": 1.0}), cluster=one_server("gpu", num_stages), job=job(4))
    search = Search(problem, SolveOptions(time_limit_s=None))
    tables, beside = StageTables(search.costs), PlacedGroup(placement=FAST.placement, opens=False)
    _offer(search, tables, (FAST, *(beside,) * (num_stages - 1)), (*range(1, num_stages), 60))
    steps = Chain(tables, 0)
    steps.step(search)
    assert steps.num_at_once == num_steps


def test_all_kinds_of_changes_are_drawn():
    """Two of three hosts with two devices each are in use."""
    cluster = Cluster(
        name="three",
        device_types=kinds(gpu=float("inf")),
        servers=(Server(name="pair", count=3, islands=(Island(device_type="gpu", count=2),)),),
    )
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=cluster, job=job(2, micro_batch=2))
    one, both = Placement(server_class=0, island=0), Placement(server_class=0, island=0, replicas=2)
    random = np.random.default_rng(0)
    found = {random_change(problem, cluster, 2, ((one, one), (both,), (both,)), random) for _ in range(2_000)}
    expected = {
        "one changed": ((one,), (both,), (both,)),
        "all equal ones changed": ((one, one), (one, one), (one, one)),
        "moved": ((both,), (one, one), (both,)),
        "moved to the end": ((both,), (both,), (one, one)),
        "copied": ((one, one), (one, one), (both,)),
        "two swapped, one of them the last": ((both,), (both,), (one, one)),
        "copied over the first": ((both,), (both,), (both,)),
    }
    assert set(expected.values()) <= found
    added = {random_change(problem, cluster, 2, ((one, one),), random) for _ in range(200)}
    assert {((one, one), (both,)), ((both,), (one, one)), ((one, one), (one, one))} <= added
