"""Layers in proportion to speed, then local moves."""

import itertools
from dataclasses import replace

from hypothesis import given, settings

from planner.core.job import Recompute
from planner.core.placement import Placement
from planner.core.problem import Problem
from planner.core.schedule import warmup_depth
from planner.cost.cost_model import CostModel
from planner.network.layout import recompute_choice
from planner.network.seating import Seat
from planner.solvers.balance import Balancer
from planner.solvers.options import SolveOptions
from planner.solvers.registry import run
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds, one_device_per_server, one_server
from tests.property.strategies import problems

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


def _alone(server_class):
    return Seat(placement=Placement(server_class=server_class, island=0), opens=True)


def _balanced_counts(problem, *classes):
    """Layers of each stage over single-device servers of the given classes."""
    balancer = Balancer(CostModel(problem), problem.variants[0])
    layout = balancer.layout([_alone(index) for index in classes])
    if layout is None:
        return None
    stops = [0, *(block.stop for block in layout)]
    return [after - before for before, after in itertools.pairwise(stops)]


def test_layers_are_in_proportion_to_speed():
    """Speeds 3 : 1 and 8 equal layers: 6 and 2, both 6 s."""
    problem = Problem(
        model=chain(8, {"fast": 1.0, "slow": 3.0}), cluster=one_device_per_server("fast", "slow"), job=job(1)
    )
    assert _balanced_counts(problem, 0, 1) == [6, 2]
    assert _balanced_counts(problem, 1, 0) == [2, 6]


def test_a_device_short_of_memory_gets_what_it_holds():
    """As above, but the fast device holds 4 layers of 1 byte."""
    cluster = one_device_per_server("fast", "slow")
    problem = Problem(
        model=chain(8, {"fast": 1.0, "slow": 3.0}, params_bytes=2.0),
        cluster=replace(cluster, device_types=kinds(fast=4.0, slow=100.0)),
        job=job(1, optimizer=WEIGHTS_ONLY),
    )
    assert _balanced_counts(problem, 0, 1) == [4, 4]


def test_no_layout_has_more_stages_than_layers():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(1))
    assert _balanced_counts(problem, 0, 1) is None


def test_no_layout_where_memory_is_short_in_every_way():
    problem = Problem(
        model=chain(2, {"gpu": 1.0}, params_bytes=8.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=3.0),
        job=job(1, optimizer=WEIGHTS_ONLY, recompute=Recompute.NEVER),
    )
    assert _balanced_counts(problem, 0, 1) is None


def test_replicas_of_several_whole_hosts_are_found():
    """Only 4 replicas are allowed, and servers have 2 devices."""
    cluster = one_server("gpu", 2)
    cluster = replace(cluster, servers=(replace(cluster.servers[0], count=2),))
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=cluster, job=job(1, micro_batch=4, replicas=(4,)))
    (stage,) = run(problem, "greedy", UNLIMITED_TIME).plan.stages
    assert stage.devices == ("host-0/0", "host-0/1", "host-1/0", "host-1/1")


def test_same_problem_gives_the_same_plan():
    model = chain(7, {"fast": 1.0, "slow": 2.5}, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_device_per_server("slow", "fast", "slow"), job=job(6))
    first, second = (run(problem, "greedy", UNLIMITED_TIME) for _ in range(2))
    assert (first.plan, first.counts) == (second.plan, second.counts)


def _fits_one_device(problem):
    costs, num_layers = CostModel(problem), problem.model.num_layers
    placements = [
        Placement(server_class=index, island=island)
        for index, server in enumerate(problem.cluster.servers)
        for island in range(len(server.islands))
    ]
    return any(
        recompute_choice(costs, variant, placement, 0, num_layers, depth) is not None
        for variant in problem.variants
        if problem.job.allows_replicas(1, variant.micro_batch)
        for depth in [warmup_depth(variant.schedule, 1, variant.num_microbatches)]
        for placement in placements
    )


@settings(max_examples=60)
@given(problems())
def test_a_plan_is_found_where_one_device_holds_the_model_and_never_beats_the_optimum(problem):
    found = run(problem, "greedy", UNLIMITED_TIME)
    best = run(problem, "brute-force", UNLIMITED_TIME)
    if _fits_one_device(problem):
        assert found.plan is not None
    if found.plan is not None:
        assert found.objective_s >= best.objective_s
