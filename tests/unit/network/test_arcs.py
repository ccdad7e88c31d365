"""Arcs of a stage network and paths decoded to plans, on small chains."""

import math
from dataclasses import replace

import numpy as np
import pytest

from planner.core.job import Recompute
from planner.core.problem import Problem
from planner.cost.cost_model import CostModel
from planner.network.arcs import Numbering, join_arcs
from planner.network.decode import decode_path
from planner.network.stage_network import build_network
from tests.catalogue import chain, job, one_device_per_server, one_server
from tests.unit.network.enumeration import paths_between, plan_paths


def network_of(problem, **choices):
    return build_network(CostModel(problem), problem.variants[0], **choices)


def stages(network):
    """Interval, position and recompute flag of every stage arc."""
    arcs = network.arcs
    columns = (arcs.start, arcs.stop, arcs.position, arcs.recompute)
    return sorted(zip(*(column[arcs.is_stage].tolist() for column in columns), strict=True))


def test_nodes_are_numbered_without_repetition():
    """Exits at the last boundary with no stage to come are the sink."""
    numbering = Numbering(num_layers=3, max_stages=2, num_exits=2, num_entries=3)
    every = [(np.array([j]), np.array([q])) for j in range(1, 4) for q in range(3)]
    exits = [int(numbering.exits(j, q, e)[0]) for j, q in every for e in range(2) if (j[0], q[0]) != (3, 0)]
    entries = [int(numbering.entries(j, q, e)[0]) for j, q in every for e in range(3) if j[0] < 3]
    sink = len(numbering.levels()) - 1
    assert len({0, *exits, *entries, sink}) == 2 + len(exits) + len(entries)
    assert {int(numbering.exits(np.array([3]), np.array([0]), e)[0]) for e in range(2)} == {sink}
    assert (np.diff(numbering.levels()) >= 0).all()


def test_stages_leave_a_layer_for_each_one_to_come():
    """2 layers on 2 hosts: all at once, or the first in position 2 and the second in position 1."""
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_device_per_server("gpu"), job=job(1))
    assert stages(network_of(problem)) == [(0, 2, 1, False)]
    grown = replace(problem.cluster, servers=(replace(problem.cluster.servers[0], count=2),))
    assert stages(network_of(replace(problem, cluster=grown))) == [
        (0, 1, 2, False),
        (0, 2, 1, False),
        (1, 2, 1, False),
    ]


@pytest.mark.parametrize(("recompute", "found"), [(Recompute.NEVER, []), (Recompute.ALWAYS, [(0, 3, 1, True)])])
def test_stages_that_do_not_fit_are_left_out(recompute, found):
    """Three layers save 12 bytes and have 6; recomputing, they keep two inner inputs of 1 and 4 to work with."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    cluster = one_device_per_server("gpu", memory_bytes=6.0)
    assert stages(network_of(Problem(model=model, cluster=cluster, job=job(1, recompute=recompute)))) == found


def test_only_stages_that_do_not_fit_otherwise_recompute():
    """Two devices of 6 bytes, one micro-batch in flight: one layer saves 4 bytes, two would save 8."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_server("gpu", 2, memory_bytes=6.0), job=job(1))
    flags = {(start, stop): recompute for start, stop, _, recompute in stages(network_of(problem))}
    assert flags == {(0, 1): False, (0, 2): True, (0, 3): True, (1, 3): True, (2, 3): False}


def test_stages_longer_than_a_limit_are_left_out():
    """4 micro-batches of 2 s a layer: three layers take 24 s, two 16."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_server("gpu", 3), job=job(4))
    longest = {stop - start for start, stop, *_ in stages(network_of(problem, longest_s=16.0))}
    assert longest == {1, 2}
    assert len(network_of(problem, longest_s=7.0).arcs) == 0


def test_arcs_on_no_path_are_removed_with_those_left_out():
    """Without the single stage [0, 2), its opening from the source has nowhere to go."""
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(1))
    network = network_of(problem)
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
    arcs = network_of(Problem(model=model, cluster=cluster, job=job(1, micro_batch=2, replicas=(1,)))).arcs
    inside = ~arcs.is_stage & (arcs.opened_hosts == 0)
    assert arcs.transfer_s[inside].tolist() == [1.5]
    assert arcs.opened_class[inside].tolist() == [-1]


def test_paths_over_too_many_hosts_are_no_plans():
    """One host of a class may be opened twice by a path, though not by a plan."""
    problem = Problem(model=chain(2, {"a": 2.0, "b": 2.0}), cluster=one_device_per_server("a", "b"), job=job(1))
    network = network_of(problem)
    every = list(paths_between(network.arcs.tail, network.arcs.head, 0, network.graph.num_nodes - 1))
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
    assert len(network_of(problem).arcs) == 0
    assert len(join_arcs([])) == 0
    assert math.isinf(network_of(problem).graph.from_source(np.empty(0))[-1])
