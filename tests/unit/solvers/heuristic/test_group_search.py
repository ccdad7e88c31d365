"""Device groups by dynamic programming over hosts."""

import math

import numpy as np

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.solvers.heuristic.allocation_graph import all_counts, allocation_graph, counts_in_orders
from stagecut.planner.solvers.heuristic.group_search import group_sequences
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from tests.catalogue import chain, job, kinds, one_device_per_server, one_server


def _sequences(problem, limits_s, *, count=20, **options):
    variant, cluster = problem.variants[0], problem.cluster
    graph = allocation_graph(problem, cluster, variant.micro_batch, allowed=all_counts(cluster))
    return group_sequences(StageTables(CostModel(problem)), variant, graph, np.array(limits_s), count=count, **options)


def _classes(sequence):
    return [group.placement.server_class for group in sequence.groups]


def test_counts_in_an_order_take_the_classes_in_the_order_of_the_pipeline():
    """The pipeline is laid out from its last stage, here on the second class."""
    cluster = one_device_per_server("a", "b")
    assert counts_in_orders(cluster, [(0, 1)]) == {(0, 0), (0, 1), (1, 1)}
    assert all_counts(cluster) == counts_in_orders(cluster, [(0, 1), (1, 0)])


def test_the_order_that_keeps_to_the_limit_is_found():
    """One layer of 9 s and two of 1 s: the fast device (a third of that) must take the first one.

    Limit 4 s: 9 / 3 on the fast device and 2 on the slow one; the other way round 9 s.
    """
    layers = chain(3, {"fast": 1.0, "slow": 3.0}).layers
    heavy = chain(1, {"fast": 3.0, "slow": 9.0}).layers[0]
    model = chain(3, {"fast": 1.0, "slow": 1.0})
    model = type(model)(name="heavy first", layers=(heavy, *layers[1:]))
    problem = Problem(model=model, cluster=one_device_per_server("slow", "fast"), job=job(4))
    (best, *_) = _sequences(problem, [4.0, 6.0, math.inf])
    assert (_classes(best), best.stops, best.limit_s) == ([1, 0], (2, 3), 4.0)


def test_nothing_is_found_below_what_a_layer_takes():
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    assert _sequences(problem, [1.0]) == []


def test_nothing_is_found_where_no_device_group_is_allowed():
    """Two replicas, where servers have one device and two of them may not join."""
    problem = Problem(
        model=chain(2, {"gpu": 1.0}), cluster=one_device_per_server("gpu"), job=job(2, micro_batch=2, replicas=(2,))
    )
    assert _sequences(problem, [math.inf]) == []


def test_several_whole_hosts_are_one_stage():
    """Only 4 replicas are allowed, and the 2 hosts have 2 devices each."""
    server = Server(name="pair", count=2, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="pairs", device_types=kinds(gpu=math.inf), servers=(server,))
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=cluster, job=job(1, micro_batch=4, replicas=(4,)))
    (only,) = _sequences(problem, [math.inf])
    assert [group.placement for group in only.groups] == [Placement(server_class=0, island=0, num_hosts=2, replicas=4)]


def test_islands_are_taken_in_either_order_and_every_sequence_finds_its_devices():
    """A host of a fast and a slow island, one device each: alone, or one after the other."""
    server = Server(name="mixed", islands=(Island(device_type="a", count=1), Island(device_type="b", count=1)))
    cluster = Cluster(name="mixed", device_types=kinds(a=math.inf, b=math.inf), servers=(server,))
    problem = Problem(model=chain(2, {"a": 1.0, "b": 2.0}), cluster=cluster, job=job(4))
    found = _sequences(problem, [1.0, 2.0, 3.0])
    islands = [tuple(group.placement.island for group in sequence.groups) for sequence in found]
    assert (0, 1) in islands or (1, 0) in islands
    assert (0,) in islands
    assert all(name_devices(cluster, sequence.groups) for sequence in found)


def test_as_many_stages_as_the_limit_asks_for():
    """Six layers of 1 s on up to three devices: limits of 6, 3 and 2 s ask for 1, 2 and 3 stages."""
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=one_server("gpu", 3), job=job(1))
    for limit_s, num_stages in ((6.0, 1), (3.0, 2), (2.0, 3)):
        best = _sequences(problem, [limit_s])[0]
        assert len(best.groups) == num_stages


def test_limits_may_include_what_follows_the_last_backward():
    """4 layers of 2 s on two replicas of one sample: 8 s a micro-batch.

    Their all-reduces move 4 bytes each at 1 byte/s: 16 s, a third of it for each of 3 micro-batches, 13.3 s together.
    """
    optimizer = Optimizer(name="gradients", weight_bytes=0.0, gradient_bytes=1.0, state_bytes=0.0)
    problem = Problem(
        model=chain(4, {"gpu": 2.0}, params_bytes=8.0),
        cluster=one_server("gpu", 2, fabric=Link(bandwidth_bytes_per_s=1.0)),
        job=job(3, micro_batch=2, replicas=(2,), optimizer=optimizer),
    )
    limits_s = [8.0, 13.0, 14.0]
    assert [found.limit_s for found in _sequences(problem, limits_s)] == [8.0]
    assert [found.limit_s for found in _sequences(problem, limits_s, with_tails=True)] == [14.0]
