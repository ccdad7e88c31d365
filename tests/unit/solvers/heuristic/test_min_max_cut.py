"""Cuts that make the slowest stage as fast as possible."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
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
    ("schedule", "transfer_s", "limit_s"),
    [
        (Schedule.ONE_F_ONE_B, 2.0, 8.0),
        (Schedule.EAGER_ONE_F_ONE_B, 2.0, 10.0),
        (Schedule.EAGER_ONE_F_ONE_B, 6.0, 9.0),
        (Schedule.EAGER_ONE_F_ONE_B, 11.0, -1.0),
        (Schedule.GPIPE, 5.0, 10.0),
        (Schedule.GPIPE, 6.0, -1.0),
    ],
)
def test_a_stage_that_sends_long_messages_has_less_time_to_compute(schedule, transfer_s, limit_s):
    """The limit is 10 s: w + c, max(w, c, 2/3 (w + c)) and max(w, 2 c) stay within it."""
    assert work_limit(RULES[schedule], 10.0, transfer_s) == limit_s
