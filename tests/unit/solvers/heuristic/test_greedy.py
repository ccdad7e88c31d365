"""Good plans in seconds."""

import math
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import warmup_depth
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.arrangement import recompute_choice
from stagecut.planner.solvers.heuristic.greedy import first_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, WEIGHTS_ONLY, chain, job, layer, one_device_per_server, one_server
from tests.property.strategies import problems

UNLIMITED_TIME = SolveOptions(time_limit_s=None)


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


def test_variants_that_are_known_not_to_beat_the_best_plan_are_skipped():
    """Floors of the very best time leave its variants alone; with more than that for all, there is nothing to try."""
    model = chain(5, {"gpu": 1.0}, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_device_per_server("gpu", "gpu"), job=job(4))
    best = run(problem, "greedy", UNLIMITED_TIME)
    for floor_s, found_s in ((best.objective_s, best.objective_s), (math.inf, math.inf)):
        search = Search(problem, UNLIMITED_TIME)
        first_plans(problem, search, dict.fromkeys(problem.variants, floor_s))
        assert search.best_s == found_s


def test_a_plan_to_begin_from_is_kept_or_beaten():
    """Device and half the layers each: 5 x 4 s, and nothing is faster."""
    known = next(known for known in CATALOGUE if known.name == "heterogeneous chain")
    start = run(known.problem, "even", UNLIMITED_TIME)
    assert start.objective_s > known.optimum_s
    assert run(known.problem, "greedy", UNLIMITED_TIME, start=start.plan).objective_s == known.optimum_s
    best = run(known.problem, "greedy", UNLIMITED_TIME).plan
    assert run(known.problem, "greedy", UNLIMITED_TIME, start=best).plan == best


def test_known_optima_are_found():
    for known in CATALOGUE:
        assert run(known.problem, "greedy", UNLIMITED_TIME).objective_s == pytest.approx(known.optimum_s), known.name


def test_over_many_devices_the_first_plan_is_an_even_split():
    """A device holds 60 of 100 layers, so 256 of them are 128 pipelines of 2; candidates would even out the times."""
    model = ModelProfile(
        name="uneven",
        layers=tuple(layer(f"layer-{n}", {"gpu": 1.0 if n < 50 else 2.0}, params_bytes=2.0) for n in range(100)),
    )
    cluster = one_server("gpu", 4, memory_bytes=60.0)
    cluster = replace(cluster, servers=(replace(cluster.servers[0], count=64),))
    problem = Problem(model=model, cluster=cluster, job=job(128, optimizer=WEIGHTS_ONLY, pipelines=None))
    found = threading.Event()
    plan = run(problem, "greedy", UNLIMITED_TIME, observer=lambda _point: found.set(), cancelled=found).plan
    assert plan.share.num_pipelines == 128
    assert [stage.stop for stage in plan.stages] == [50, 100]


def _fits_one_device(problem):
    costs, num_layers = CostModel(problem), problem.model.num_layers
    if 1 not in problem.tensor_parallel_degrees:
        return False
    return any(
        recompute_choice(costs.of(variant.share), variant, placement, 0, num_layers, depth) is not None
        for variant in problem.variants
        if problem.job.allows_replicas(1, variant.micro_batch)
        for depth in [warmup_depth(variant.schedule, 1, variant.num_microbatches)]
        for index, server in enumerate(problem.cluster.servers)
        for placement in [Placement(server_class=index, island=island) for island in range(len(server.islands))]
    )


@settings(max_examples=80)
@given(problems())
def test_a_legal_plan_is_found_where_one_device_holds_the_model_and_never_beats_the_optimum(problem):
    found = run(problem, "greedy", UNLIMITED_TIME)
    best = run(problem, "brute-force", UNLIMITED_TIME)
    if _fits_one_device(problem):
        assert found.plan is not None
    if found.plan is not None:
        assert faults(CostModel(problem), found.plan) == ()
        assert found.objective_s >= best.objective_s
