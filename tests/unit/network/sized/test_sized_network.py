"""Networks with the seconds of every sublot."""

import numpy as np

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.sized.network import Sizing, build_sized_network, with_host_counts
from stagecut.planner.network.sized.relaxation import LINES, relax_line, through_s
from tests.catalogue import chain, job, kinds
from tests.unequal_problems import two_kinds

SIZING = Sizing(num_samples=4, sizes=(1, 2, 4))


def network_of(problem, sizing=SIZING):
    return build_sized_network(CostModel(problem), sizing, longest_s=100.0)


def test_lengths_are_the_sizes_and_what_they_leave():
    """7 samples in sublots of 3 leave 1, of 5 leave 2."""
    sizing = Sizing(num_samples=7, sizes=(3, 5))
    assert sizing.lengths.tolist() == [1, 2, 3, 5]
    assert sizing.passes_s(np.array([1.0, 10.0, 100.0, 1000.0])).tolist() == [201.0, 1010.0]


def test_arcs_have_the_seconds_of_every_length():
    """4 + x on the first kind of device, 3 x on the other; the other ways take more than 100 s."""
    arcs = network_of(two_kinds()).arcs
    stages = arcs.option >= 0
    assert sorted(arcs.forward_s[stages].tolist()) == [[3.0, 6.0, 12.0], [5.0, 6.0, 8.0]]
    assert sorted(arcs.backward_s[stages].tolist()) == [[6.0, 12.0, 24.0], [10.0, 12.0, 16.0]]


def test_memory_leaves_small_sizes():
    """4 saved bytes and x working ones in 6."""
    arcs = network_of(two_kinds(memory_bytes=6.0)).arcs
    assert arcs.allowed[arcs.option >= 0].tolist() == [[True, True, False]] * 2


def hosts(count):
    island = Island(device_type="gpu", count=1)
    return Problem(
        model=chain(3, {"gpu": 1.0}),
        cluster=Cluster(
            name="hosts", device_types=kinds(gpu=np.inf), servers=(Server(name="host", islands=(island,), count=count),)
        ),
        job=job(1, micro_batch=4, unequal=True),
    )


def test_no_path_opens_more_hosts_than_there_are():
    """Three layers need three hosts at most: with two, a path has two stages at most."""
    network = with_host_counts(network_of(hosts(2)), most_arcs=10_000)
    stages = np.where(network.arcs.option >= 0, -1.0, 0.0)
    assert -network.graph.to_sink(stages)[0] == 2


def test_relaxation_of_a_single_path_is_the_least_makespan_of_each_sample():
    """One host, one stage of 3 layers of 0.5 s forward per sample: 6 s for 4 samples in any sublots."""
    network = with_host_counts(network_of(hosts(1)), most_arcs=10_000)
    relaxation = relax_line(network, LINES[0])
    assert relaxation.left_s[0].tolist() == [6.0, 4.5, 3.0, 1.5]
    assert relaxation.arrived_s[-1].tolist() == [1.5, 3.0, 4.5, 6.0]
    assert through_s(network, LINES[0], relaxation).max() == 6.0
