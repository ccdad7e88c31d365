"""Gradients and all-reduces that wait for each other, along the paths of a network."""

import itertools

import numpy as np
from hypothesis import given, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.allreduce_queues import Lengths, home_of_queue, queue_after
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.chains import chains_of
from stagecut.planner.simulator.ways_home import ways_home
from tests.catalogue import GRADIENTS, chain, job, kinds
from tests.network_paths import paths_by_plan, positioned_network, with_queues
from tests.property.strategies import problems

ROUNDING = 1e-12


def lengths_along(rows, path):
    """The lengths of a path up to each of its arcs."""
    before = Lengths(0.0, 0.0, 0.0)
    for arc in path:
        yield arc, before
        home = max(before.home + rows.round_trip[arc], home_of_queue(rows.queues, arc, before))
        before = Lengths(home, before.forward + rows.forward[arc], queue_after(rows.queues, arc, before))


def busy_rows(rows, path):
    """For each stage of a path: its work, and the longest of the chains that follow it."""
    costs_s = rows.costs_s
    for arc, before in lengths_along(rows, path):
        if rows.network.arcs.is_stage[arc]:
            yield max(
                before.home + costs_s["busy"][arc],
                before.forward + costs_s["sync"][arc],
                before.queue + rows.queues.after_busy[arc],
            )


@settings(max_examples=60)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4).map(with_queues))
def test_no_path_says_more_than_the_ways_home_of_its_plan(problem):
    """This holds for every variant, with positions and without."""
    costs = CostModel(problem)
    for variant in problem.variants:
        coarse = build_network(costs, variant)
        for network in (coarse, with_positions(coarse)):
            rows = build_rows(network)
            for plan, path in itertools.islice(paths_by_plan(network).items(), 20):
                numbers = costs.plan(plan)
                work_s = variant.num_microbatches * (numbers.forward_s + numbers.backward_s)
                whole = chains_of(numbers).forward_before + work_s + ways_home(numbers)
                assert max(busy_rows(rows, path)) <= whole.max() * (1 + ROUNDING)


def two_pipelines(num_layers, *, hosts, devices):
    """Pipelines with a number of hosts each, layers of F = B = 1 s that send nothing, 1 s for the all-reduce of each.

    4 bytes of gradients between the hosts of two pipelines at 4 bytes/s; 2 micro-batches.
    """
    island = Island(device_type="gpu", count=devices)
    server = Server(name="host", count=2 * hosts, islands=(island,), nic=Link(bandwidth_bytes_per_s=4.0))
    cluster = Cluster(name="hosts", device_types=kinds(gpu=np.inf), servers=(server,))
    chosen = job(4, pipelines=(2,), optimizer=GRADIENTS)
    problem = Problem(model=chain(num_layers, {"gpu": 2.0}, params_bytes=8.0), cluster=cluster, job=chosen)
    network = positioned_network(problem)
    assert network.costs.share.host_splits == (2,)
    (path,) = (path for plan, path in paths_by_plan(network).items() if len(plan.stages) == num_layers)
    return list(busy_rows(build_rows(network), path))


def test_all_reduces_of_a_host_add_up():
    """First stage: 2 x 2 + 1. Second one: its first forward begins at 1 and both all-reduces follow its work."""
    assert two_pipelines(2, hosts=1, devices=2) == [5.0, 7.0]


def test_the_last_gradient_leaves_a_host_behind_the_all_reduces_of_its_later_stages():
    """Two hosts of two devices. The third stage is the first of the second host.

    Fourth stage: its work is done at 3 + 4, its all-reduce at 8; only then the gradient of the third stage, ready at 8
    as well, leaves. With B of the second stage at 9, all-reduces of the second and the first stage at 10 and 11.
    Third stage: done at 2 + 4, B of the second at 7, then the all-reduces at 8 and 9.
    """
    assert two_pipelines(4, hosts=2, devices=2) == [5.0, 7.0, 9.0, 11.0]
