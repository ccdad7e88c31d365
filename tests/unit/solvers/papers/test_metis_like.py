"""Device groups of bounded variance."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.papers.metis_like import VARIANCE, deals, estimated_s, groupings
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, WEIGHTS_ONLY, chain, job, kinds, one_device_per_server, one_server
from tests.property.strategies import problems

OPTIONS = SolveOptions(time_limit_s=None)


def _cluster(*servers):
    """Servers given as (number of hosts, devices of each island)."""
    made = tuple(
        Server(
            name=f"server{index}",
            count=count,
            islands=tuple(Island(device_type="gpu", count=size) for size in islands),
        )
        for index, (count, islands) in enumerate(servers)
    )
    return Cluster(name="made", device_types=kinds(gpu=float("inf")), servers=made)


@given(st.integers(1, 20), st.integers(1, 8))
def test_deals_are_all_rising_powers_of_two_that_are_large_enough(num_devices, num_stages):
    powers = [1, 2, 4, 8, 16]
    expected = {
        sizes
        for sizes in itertools.combinations_with_replacement(powers, num_stages)
        if sum(sizes) == num_devices and sizes[0] >= VARIANCE * num_devices / num_stages
    }
    found = list(deals(num_devices, num_stages))
    assert len(found) == len(expected)
    assert set(found) == expected


def test_most_even_deal_comes_first():
    """8 devices, 4 stages, none below one device: 2 2 2 2, then 1 1 2 4; 1 1 1 5 is no powers of two."""
    assert list(deals(8, 4)) == [(2, 2, 2, 2), (1, 1, 2, 4)]


def test_groups_fill_islands_or_whole_hosts():
    """Two hosts of two devices; 4 devices in 1 to 3 stages.

    (4): both hosts. (2, 2): a host each. (1, 1, 2) and (2, 1, 1). No single device is below v n / S = 2/3.
    """
    found = [
        [(group.placement.num_hosts, group.placement.replicas, group.opens) for group in grouping]
        for grouping in groupings(_cluster((2, (2,))), most_stages=3)
    ]
    assert found == [
        [(2, 4, True)],
        [(1, 2, True), (1, 2, True)],
        [(1, 1, True), (1, 1, False), (1, 2, True)],
        [(1, 2, True), (1, 1, True), (1, 1, False)],
    ]


def test_groups_that_straddle_servers_are_left_out():
    """One device here and two there: in one stage 3 is no power of two, and (1, 2) fits in one order only."""
    found = list(groupings(_cluster((1, (1,)), (1, (2,))), most_stages=2))
    assert [[group.placement.server_class for group in grouping] for grouping in found] == [[0, 1], [1, 0]]


def test_islands_of_a_host_are_one_run():
    (grouping,) = groupings(_cluster((1, (2, 2))), most_stages=2)
    assert [(group.placement.island, group.opens) for group in grouping] == [(0, True), (1, False)]


def test_estimate_is_that_of_the_docstring():
    """Two stages of 2 and 1 layers of 3 s, 1 s over the boundary, M = 4: 3 x 6 + 9 + 2 x 1 = 29 s."""
    network = Link(bandwidth_bytes_per_s=1.0)
    problem = Problem(
        model=chain(3, {"gpu": 3.0}, output_bytes=1.0),
        cluster=one_device_per_server("gpu", "gpu", network=network),
        job=job(4),
    )
    search = Search(problem, OPTIONS)
    grouping = next(groups for groups in groupings(problem.cluster, most_stages=2) if len(groups) == 2)
    sequence = SequenceCosts(StageTables(search.costs), problem.variants[0], grouping)
    assert estimated_s(sequence, np.array([2, 3])) == 29.0


def test_layers_follow_the_speed_of_the_groups():
    known = next(known for known in CATALOGUE if known.name == "heterogeneous chain")
    result = run(known.problem, "metis-like", OPTIONS)
    assert result.objective_s == known.optimum_s
    assert result.own_objective.name == "estimated iteration time, s"


def test_replicas_give_way_to_tensor_parallelism_where_memory_is_short():
    """One layer of 2 bytes of weights, two devices of 1 byte each: only halves of it fit."""
    model = chain(1, {"gpu": 1.0}, params_bytes=4.0, tensor_parallel_bytes=0.0)
    problem = Problem(
        model=model,
        cluster=one_server("gpu", 2, memory_bytes=1.0),
        job=job(2, micro_batch=2, optimizer=WEIGHTS_ONLY),
    )
    (stage,) = run(problem, "metis-like", OPTIONS).plan.stages
    assert (stage.replicas, stage.tensor_parallel) == (1, 2)


@settings(max_examples=60)
@given(problems(max_layers=6))
def test_plans_are_legal(problem):
    result = run(problem, "metis-like", OPTIONS)
    if result.plan is not None:
        assert faults(CostModel(problem), result.plan) == ()


def test_interleaved_plans_alone_are_refused():
    problem = Problem(
        model=chain(4, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(2, schedule=Schedule.INTERLEAVED)
    )
    with pytest.raises(UnsupportedError, match=r"metis-like.*the job allows interleaved; allow gpipe or 1f1b"):
        run(problem, "metis-like", OPTIONS)
