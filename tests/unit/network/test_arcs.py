"""Arcs of a stage network and paths decoded to plans, on small chains."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.arcs import join_arcs
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.stage_network import by_mode
from tests.catalogue import chain, job, kinds, one_device_per_server, one_server
from tests.network_paths import all_paths, coarse_network, plan_paths, positioned_network

HOSTS = Cluster(
    name="three",
    device_types=kinds(gpu=math.inf),
    servers=(Server(name="host", count=3, islands=(Island(device_type="gpu", count=1),)),),
)
"""Three hosts of one device."""


def stages(network):
    """Interval, fewest stages to come and recompute flag of every stage arc."""
    arcs = network.arcs
    columns = (arcs.start, arcs.stop, arcs.least_position, arcs.recompute)
    return sorted(zip(*(column[arcs.is_stage].tolist() for column in columns), strict=True))


def test_arcs_are_numbered_in_the_order_of_loops():
    """By ascending tails, so that loops read them from memory one after the other."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=HOSTS, job=job(4, recompute=Recompute.AUTO))
    coarse = coarse_network(problem)
    for network in (coarse, by_mode(coarse)[0], positioned_network(problem)):
        assert len(network.arcs) > 3
        assert (np.diff(network.arcs.tail) >= 0).all()


def test_arcs_lead_from_level_to_level():
    """Source, then exits and entries of boundaries 1 and 2, then the sink; no node is passed over."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(1, micro_batch=2))
    for network in (coarse_network(problem), positioned_network(problem)):
        level = network.graph.level
        assert (level[network.arcs.tail] < level[network.arcs.head]).all()
        assert (np.diff(level) >= 0).all()
        assert (level[0], level[-1]) == (0, 7)
        assert set(range(len(level))) == {*network.arcs.tail.tolist(), *network.arcs.head.tolist()}


def test_stages_leave_a_layer_for_each_one_to_come():
    """2 layers on 2 hosts: all at once, or the first in position 2 and the second in position 1."""
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_device_per_server("gpu"), job=job(1))
    assert stages(positioned_network(problem)) == [(0, 2, 1, False)]
    grown = replace(problem.cluster, servers=(replace(problem.cluster.servers[0], count=2),))
    assert stages(positioned_network(replace(problem, cluster=grown))) == [
        (0, 1, 2, False),
        (0, 2, 1, False),
        (1, 2, 1, False),
    ]


def test_without_positions_there_is_one_arc_per_stage_and_option():
    """3 layers on 3 hosts: 6 intervals, of which [0, 1) may come second or third to last."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=HOSTS, job=job(1))
    without, network = coarse_network(problem), positioned_network(problem)
    least = {(0, 1): 2, (0, 2): 2, (0, 3): 1, (1, 2): 2, (1, 3): 1, (2, 3): 1}
    assert stages(without) == [(*interval, position, False) for interval, position in least.items()]
    assert [q for i, j, q, _ in stages(network) if (i, j) == (0, 1)] == [2, 3]
    assert len(stages(network)) == 7
    assert (without.has_positions, network.has_positions) == (False, True)


def test_least_and_largest_depth_are_those_of_the_positions_a_stage_may_have():
    """1F1B with many micro-batches: [0, 1) is followed by one or two stages, [1, 2) by one, or by [2, 3) alone."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=HOSTS, job=job(9))
    network = coarse_network(problem)
    arcs, depths = network.arcs, zip(network.least_depth.tolist(), network.largest_depth.tolist(), strict=True)
    found = zip(arcs.is_stage, arcs.start.tolist(), arcs.stop.tolist(), depths, strict=True)
    ranges = {(start, stop): own for is_stage, start, stop, own in found if is_stage}
    assert ranges == {(0, 1): (2, 3), (0, 2): (2, 2), (0, 3): (1, 1), (1, 2): (2, 2), (1, 3): (1, 1), (2, 3): (1, 1)}
    fine = positioned_network(problem)
    for depths in (fine.least_depth, fine.largest_depth, fine.arcs.largest_position):
        assert (depths == fine.arcs.least_position)[fine.arcs.is_stage].all()


@pytest.mark.parametrize(("recompute", "found"), [(Recompute.NEVER, []), (Recompute.ALWAYS, [(0, 3, 1, True)])])
def test_stages_that_do_not_fit_are_left_out(recompute, found):
    """Three layers save 12 bytes and have 6; recomputing, they keep two inner inputs of 1 and 4 to work with."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    cluster = one_device_per_server("gpu", memory_bytes=6.0)
    assert stages(positioned_network(Problem(model=model, cluster=cluster, job=job(1, recompute=recompute)))) == found


def test_only_stages_that_do_not_fit_otherwise_recompute():
    """Two devices of 6 bytes, one micro-batch in flight: one layer saves 4 bytes, two would save 8."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_server("gpu", 2, memory_bytes=6.0), job=job(1))
    flags = {(start, stop): recompute for start, stop, _, recompute in stages(positioned_network(problem))}
    assert flags == {(0, 1): False, (0, 2): True, (0, 3): True, (1, 3): True, (2, 3): False}


def test_stages_longer_than_a_limit_are_left_out():
    """4 micro-batches of 2 s a layer: three layers take 24 s, two 16."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_server("gpu", 3), job=job(4))
    longest = {stop - start for start, stop, *_ in stages(coarse_network(problem, longest_s=16.0))}
    assert longest == {1, 2}
    assert len(coarse_network(problem, longest_s=7.0).arcs) == 0


def test_arcs_on_no_path_are_removed_with_those_left_out():
    """Without the single stage [0, 2), its opening from the source has nowhere to go."""
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(1))
    network = positioned_network(problem)
    whole = network.arcs.is_stage & (network.arcs.stop - network.arcs.start == 2)
    smaller, kept = network.restricted(~whole)
    assert len(plan_paths(network)) == 2
    assert len(plan_paths(smaller)) == 1
    assert len(network.arcs) - len(kept) == 2


def test_transfers_take_the_time_of_their_link():
    """3 bytes a sample, 2 samples, at 4 bytes/s inside the host."""
    cluster = one_server("gpu", 2)
    island = replace(cluster.servers[0].islands[0], fabric=replace(cluster.network, bandwidth_bytes_per_s=4.0))
    cluster = replace(cluster, servers=(replace(cluster.servers[0], islands=(island,)),))
    model = chain(2, {"gpu": 2.0}, output_bytes=3.0)
    arcs = coarse_network(Problem(model=model, cluster=cluster, job=job(1, micro_batch=2, replicas=(1,)))).arcs
    inside = ~arcs.is_stage & (arcs.opened_hosts == 0)
    assert arcs.transfer_s[inside].tolist() == [1.5]
    assert arcs.opened_class[inside].tolist() == [-1]


def test_paths_over_too_many_hosts_are_no_plans():
    """One host of a class may be opened twice by a path, though not by a plan."""
    problem = Problem(model=chain(2, {"a": 2.0, "b": 2.0}), cluster=one_device_per_server("a", "b"), job=job(1))
    network = coarse_network(problem)
    every = list(all_paths(network))
    plans = [decode_path(network, path) for path in every]
    assert len(every) == 2 + 4
    assert plans.count(None) == 2
    assert sorted(tuple(s.devices[0] for s in plan.stages) for plan in plans if plan) == [
        ("host-0/0",),
        ("host-0/0", "host-1/0"),
        ("host-1/0",),
        ("host-1/0", "host-0/0"),
    ]


def test_problem_without_options_has_an_empty_network():
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_server("gpu", 1), job=job(1, replicas=(3,)))
    assert len(coarse_network(problem).arcs) == len(positioned_network(problem).arcs) == 0
    assert len(join_arcs([])) == 0
    assert math.isinf(coarse_network(problem).graph.from_source(np.empty(0))[-1])
