"""All-reduces in line for shared links, along the paths of a network."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.allreduce_queues import build_queues
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from tests.catalogue import chain, job, kinds, one_server
from tests.network_paths import paths_by_plan, positioned_network
from tests.property.strategies import problems

ROUNDING = 1e-12


def queue_rows(rows, path):
    """The busy and the drain form for every stage of a path that stands in line."""
    queues, stages = rows.queues, rows.network.arcs.is_stage
    way_on = rows.round_trip[path][::-1].cumsum()[::-1]
    in_line = forward = 0.0
    for arc, on in zip(path, way_on, strict=True):
        if stages[arc] and np.isfinite(queues.after_busy_s[arc]):
            yield in_line + queues.after_busy_s[arc], in_line + on + queues.after_drain_s[arc]
        in_line = forward if queues.restarts[arc] else in_line + queues.queued_s[arc]
        in_line += rows.forward[arc]
        forward += rows.forward[arc]


def with_queues(problem):
    """Replicas are allowed, and every fabric is slow and shared, so that most all-reduces stand in line."""
    slow = Link(bandwidth_bytes_per_s=2.0)
    servers = tuple(
        replace(server, islands=tuple(replace(island, fabric=slow, shared=True) for island in server.islands))
        for server in problem.cluster.servers
    )
    job = replace(problem.job, replicas=None, global_batch=2 * problem.job.global_batch, micro_batches=(2,))
    return replace(problem, cluster=replace(problem.cluster, servers=servers), job=job)


@settings(max_examples=80)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4).map(with_queues))
def test_no_arc_says_more_than_the_queue_rows_of_its_plan(problem):
    """This holds for every variant, with positions and without."""
    costs = CostModel(problem)
    coarse = [build_network(costs, variant) for variant in problem.variants]
    every_rows = [build_rows(chosen) for network in coarse for chosen in (network, with_positions(network))]
    queued_rows = [rows for rows in every_rows if rows.queues is not None]
    assume(queued_rows)
    for rows in queued_rows:
        for plan, path in itertools.islice(paths_by_plan(rows.network).items(), 30):
            found = [max(forms) for forms in queue_rows(rows, path)]
            queued = bound_rows(costs.plan(plan))["queue"]
            assert len(found) <= np.isfinite(queued).sum()
            assert max(found, default=-np.inf) <= queued.max() * (1 + ROUNDING)


GRADIENTS = Optimizer(name="gradients", weight_bytes=0.0, gradient_bytes=1.0, state_bytes=0.0)
"""A parameter of 2 bytes has 1 byte of gradient."""


def test_all_reduces_of_a_host_add_up():
    """Two pipelines with a host of two devices each; 2 layers of F = B = 1 s, 2 micro-batches, 1 s per all-reduce.

    4 bytes of gradients between two hosts at 4 bytes/s. First stage: 2 x 2 + 1 at the earliest, or 4 + 1 + 1 after
    the fill, k = 2. Second one: its first forward begins at 1 and both all-reduces follow its work: 1 + 2 x 2 + 2;
    or 3 until its first backward ends, 2 for the other micro-batch, and 2.
    """
    server = Server(
        name="host", count=2, islands=(Island(device_type="gpu", count=2),), nic=Link(bandwidth_bytes_per_s=4.0)
    )
    cluster = Cluster(name="hosts", device_types=kinds(gpu=np.inf), servers=(server,))
    chosen = job(4, pipelines=(2,), optimizer=GRADIENTS)
    problem = Problem(model=chain(2, {"gpu": 2.0}, params_bytes=8.0), cluster=cluster, job=chosen)
    network = positioned_network(problem)
    assert network.costs.share.host_splits == (2,)
    (path,) = (path for plan, path in paths_by_plan(network).items() if len(plan.stages) == 2)
    assert list(queue_rows(build_rows(network), path)) == [(5.0, 6.0), (7.0, 7.0)]


def test_problem_without_all_reduces_has_no_queue():
    problem = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(4))
    assert build_queues(positioned_network(problem)) is None
