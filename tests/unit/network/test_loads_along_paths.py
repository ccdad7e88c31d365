"""Messages that share links, along the paths of a network."""

import itertools
from functools import partial

import numpy as np
from hypothesis import given, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.allreduce_queues import Lengths, home_of_queue, queue_after
from stagecut.planner.network.link_loads import START, arc_loads, load_row, loads_after
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from tests.catalogue import chain, job, kinds, with_links
from tests.network_paths import paths_by_plan, positioned_network
from tests.property.strategies import problems

ROUNDING = 1e-12


def load_rows(rows, path):
    """The load rows of the transfers of a path."""
    before, loaded = Lengths(0.0, 0.0, 0.0), START
    for arc in path:
        own = arc_loads(rows.loads, arc)
        if rows.network.arcs.transfer_s[arc] > 0:
            yield load_row(own, loaded, before.home)
        home = max(before.home + rows.round_trip[arc], home_of_queue(rows.queues, arc, before))
        loaded = loads_after(own, loaded, before.home, home)
        before = Lengths(home, before.forward + rows.forward[arc], queue_after(rows.queues, arc, before))


@settings(max_examples=60)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4).map(partial(with_links, bandwidth_bytes_per_s=2.0)))
def test_no_path_says_more_than_the_loads_of_its_plan(problem):
    """This holds for every variant, with positions and without."""
    costs = CostModel(problem)
    for variant in problem.variants:
        coarse = build_network(costs, variant)
        for network in (coarse, with_positions(coarse)):
            rows = build_rows(network)
            for plan, path in itertools.islice(paths_by_plan(network).items(), 20):
                most_s = max(bound_rows(costs.plan(plan))["load"], default=0.0)
                assert max(load_rows(rows, path), default=0.0) <= most_s * (1 + ROUNDING)


def rows_of_stages(num_layers, *servers):
    """Rows of a device for each layer of F = B = 1 s, with messages of 4 bytes between them; 4 micro-batches."""
    cluster = Cluster(name="slow", device_types=kinds(gpu=np.inf), servers=servers)
    problem = Problem(model=chain(num_layers, {"gpu": 2.0}, output_bytes=4.0), cluster=cluster, job=job(4))
    network = positioned_network(problem)
    path, *_ = (path for plan, path in paths_by_plan(network).items() if len(plan.stages) == num_layers)
    return list(load_rows(build_rows(network), path))


TWO_SECONDS = Link(bandwidth_bytes_per_s=2.0)
"""For a message."""


def test_messages_on_a_fabric_add_up():
    """From 1 on 8 messages, then B_0; with the next boundary 16."""
    island = Island(device_type="gpu", count=3, fabric=TWO_SECONDS, shared=True)
    assert rows_of_stages(3, Server(name="host", islands=(island,))) == [1 + 16 + 1, 1 + 32 + 1]


def test_messages_to_a_host_and_from_it_add_up():
    """The first host sends 4 messages and does its B_0. To the second: from 1 on, 8, then B_1, c and B_0."""
    hosts = Server(name="host", count=3, islands=(Island(device_type="gpu", count=1),), nic=TWO_SECONDS)
    assert rows_of_stages(3, hosts) == [8 + 1, 1 + 16 + (1 + 2 + 1)]


def test_a_bridge_carries_both_directions():
    """From 1 on 8 messages, then B_0."""
    islands = (Island(device_type="gpu", count=1),) * 2
    assert rows_of_stages(2, Server(name="host", islands=islands, bridge=TWO_SECONDS)) == [1 + 16 + 1]
