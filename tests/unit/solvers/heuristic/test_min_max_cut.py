"""Cuts that make the slowest stage as fast as possible."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.min_max_cut import RULES, min_max_stops, work_limit
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds, one_device_per_server


def _layer_counts(problem, *classes):
    """Layers of each stage over single-device servers of the given classes."""
    groups = [PlacedGroup(placement=Placement(server_class=index, island=0), opens=True) for index in classes]
    stops = min_max_stops(SequenceCosts(StageTables(CostModel(problem)), problem.variants[0], groups))
    return None if stops is None else np.diff(stops, prepend=0).tolist()


def test_layers_are_in_proportion_to_speed():
    """Speeds 3 : 1 and 8 equal layers: 6 and 2, both 6 s."""
    problem = Problem(
        model=chain(8, {"fast": 1.0, "slow": 3.0}), cluster=one_device_per_server("fast", "slow"), job=job(1)
    )
    assert _layer_counts(problem, 0, 1) == [6, 2]
    assert _layer_counts(problem, 1, 0) == [2, 6]


def test_a_stage_with_leeway_gets_more():
    """Nine equal layers on equal devices, of which the first may take twice as long."""
    problem = Problem(model=chain(9, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    groups = [PlacedGroup(placement=Placement(server_class=index, island=0), opens=True) for index in (0, 1)]
    sequence = SequenceCosts(StageTables(CostModel(problem)), problem.variants[0], groups)
    assert min_max_stops(sequence, np.array([2.0, 1.0])).tolist() == [6, 9]


def test_stages_that_take_no_time_are_cut_all_the_same():
    """Four of them: the inverses of four smallest normal numbers would sum up to infinity."""
    problem = Problem(model=chain(4, {"gpu": 0.0}), cluster=one_device_per_server(*["gpu"] * 4), job=job(1))
    assert _layer_counts(problem, 0, 1, 2, 3) == [1, 1, 1, 1]


def test_a_device_short_of_memory_gets_what_it_holds():
    """The case above, but the fast device holds 4 layers of 1 byte."""
    cluster = one_device_per_server("fast", "slow")
    problem = Problem(
        model=chain(8, {"fast": 1.0, "slow": 3.0}, params_bytes=2.0),
        cluster=replace(cluster, device_types=kinds(fast=4.0, slow=100.0)),
        job=job(1, optimizer=WEIGHTS_ONLY),
    )
    assert _layer_counts(problem, 0, 1) == [4, 4]


def test_a_stage_that_recomputes_gets_less():
    """8 layers of 1 s + 1 s that keep 4 bytes each, devices of 24 bytes, k = 2 and 1.

    The first device holds 3 layers as they are, 6 s; 4 of them would recompute, 12 s. The second one
    holds the other 5 as they are, 10 s.
    """
    problem = Problem(
        model=chain(8, {"gpu": 2.0}, saved_bytes=4.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=24.0),
        job=job(4),
    )
    assert _layer_counts(problem, 0, 1) == [3, 5]


def test_no_cut_has_more_stages_than_layers():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    assert _layer_counts(problem, 0, 1) is None


def test_no_cut_where_memory_is_short_in_every_way():
    problem = Problem(
        model=chain(2, {"gpu": 1.0}, params_bytes=8.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=3.0),
        job=job(1, optimizer=WEIGHTS_ONLY, recompute=Recompute.NEVER),
    )
    assert _layer_counts(problem, 0, 1) is None


def test_layers_that_take_no_time_are_cut_too():
    problem = Problem(model=chain(3, {"gpu": 0.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    assert sum(_layer_counts(problem, 0, 1)) == 3


@pytest.mark.parametrize(
    ("schedule", "transfer_s", "excess_s", "limit_s"),
    [
        (Schedule.ONE_F_ONE_B, 2.0, 0.0, 6.0),
        (Schedule.ONE_F_ONE_B, 2.0, -3.0, 9.0),
        (Schedule.ONE_F_ONE_B, 2.0, -5.0, 10.0),
        (Schedule.ONE_F_ONE_B, 2.0, -np.inf, 10.0),
        (Schedule.EAGER_ONE_F_ONE_B, 2.0, 0.0, 10.0),
        (Schedule.EAGER_ONE_F_ONE_B, 6.0, -1.0, 9.0),
        (Schedule.EAGER_ONE_F_ONE_B, 11.0, -5.0, -1.0),
        (Schedule.GPIPE, 5.0, 0.0, 10.0),
        (Schedule.GPIPE, 6.0, 0.0, -1.0),
    ],
)
def test_a_stage_that_sends_long_messages_has_less_time_to_compute(schedule, transfer_s, excess_s, limit_s):
    """The limit is 10 s. Beyond the next stage's excess, two messages may take 0 s, 10 s, and any time under GPipe."""
    assert work_limit(RULES[schedule], 10.0, transfer_s, excess_s) == limit_s


@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B])
@pytest.mark.parametrize("limit_s", [np.inf, 1.0])
def test_without_a_limit_a_stage_may_compute_as_long_as_it_likes(schedule, limit_s):
    assert work_limit(RULES[schedule], limit_s, 0.5, -np.inf) == limit_s


@given(
    schedule=st.sampled_from([Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B]),
    works=st.lists(st.integers(0, 12), min_size=1, max_size=6),
    messages=st.lists(st.integers(0, 6), min_size=5, max_size=5),
)
def test_stages_within_their_limits_are_those_whose_loops_are(schedule, works, messages):
    """All loops of all pairs of stages against a limit of 10 s for each micro-batch that they carry.

    The depths are those of a pipeline with many micro-batches, so a loop from s to e carries k_s - k_e + 1.
    """
    limit, num_stages = 10, len(works)
    depths = warmup_depths(schedule, num_stages, 1000)
    loops = [
        sum(works[first : last + 1]) + 2 * sum(messages[first:last]) - limit * (depths[first] - depths[last] + 1)
        for first in range(num_stages)
        for last in range(first, num_stages)
    ]
    excess, within = -np.inf, True
    for stage in reversed(range(num_stages)):
        message = messages[stage] if stage < num_stages - 1 else 0
        excess = works[stage] - work_limit(RULES[schedule], float(limit), float(message), excess)
        within &= excess <= 0
    assert within == (max(loops) <= 0)
