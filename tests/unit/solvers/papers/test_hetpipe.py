"""Virtual workers of HetPipe: the program against all cuts."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, reject, settings

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.tolerances import HETPIPE_BRACKET, HETPIPE_GAP
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.network.device_groups import groups_host_by_host
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.papers.hetpipe import SCHEDULES, Worker, best_stops, bracket, on_a_path
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, chain, fast_and_slow, job, kinds, one_device_per_server
from tests.property.strategies import problems

OPTIONS = SolveOptions(time_limit_s=None)


def _solved(problem):
    return run(problem, "hetpipe", OPTIONS)


def _stages(result):
    return [(stage.stop - stage.start, *stage.devices) for stage in result.plan.stages]


def _slowest_s(problem, worker, stops, in_flight):
    """Time of the cut's slowest stage; stages recompute where the job allows it and nothing else fits."""
    costs, variant, groups = CostModel(problem), worker.sequence.variant, worker.sequence.groups
    worst_s, start = 0.0, 0
    for stage, stop in enumerate(stops):
        placement, taken_s = groups[stage].placement, math.inf
        for recompute in (False, True):
            if problem.job.recompute is (Recompute.NEVER if recompute else Recompute.ALWAYS):
                continue
            cost = costs.of(variant.share).stage(
                placement, micro_batch=variant.micro_batch, recompute=recompute, start=start, stop=stop
            )
            limit_bytes = costs.of(variant.share).stages.device_type(placement).memory_bytes
            if cost.memory_bytes(np.array([in_flight[stage]]))[0] <= limit_bytes:
                taken_s = float(cost.forward_s[0] + cost.backward_s[0])
                break
        taken_s += worker.sequence.transfer_s[stage - 1][start] if stage else 0.0
        taken_s += worker.sequence.transfer_s[stage][stop] if stage < len(stops) - 1 else 0.0
        worst_s, start = max(worst_s, taken_s), stop
    return worst_s


@settings(max_examples=40)
@given(problems(max_layers=6))
def test_program_finds_the_cut_with_the_fastest_slowest_stage(problem):
    """All cuts, for the first variant and device order, with one minibatch in flight and with two."""
    search, variant = Search(problem, OPTIONS), problem.variants[0]
    cluster = search.costs.of(variant.share).cluster
    assume(problem.job.allows_replicas(1, variant.micro_batch) and cluster.num_devices <= problem.model.num_layers)
    worker = Worker(StageTables(search.costs), variant, groups_host_by_host(cluster, range(len(cluster.servers))))
    stages, layers = worker.sequence.num_stages, problem.model.num_layers
    for in_flight in ([1] * stages, [min(2, stages - stage) for stage in range(stages)]):
        cuts = [(*inner, layers) for inner in itertools.combinations(range(1, layers), stages - 1)]
        least_s = min(_slowest_s(problem, worker, cut, in_flight) for cut in cuts)
        seconds = worker.seconds(in_flight)
        low_s, high_s = bracket(seconds)
        assert math.isinf(high_s) == math.isinf(least_s)
        if math.isfinite(least_s):
            assert low_s <= least_s <= high_s <= max(low_s, least_s) * (1 + 2 * HETPIPE_BRACKET)
            stops = best_stops(search, seconds, low_s, high_s)
            assert _slowest_s(problem, worker, stops, in_flight) <= least_s * (1 + 2 * HETPIPE_GAP)
            assert worker.slowest_s(stops, in_flight) == pytest.approx(
                _slowest_s(problem, worker, stops, in_flight), rel=1e-12
            )


@settings(max_examples=30)
@given(problems(max_layers=6))
def test_plans_are_legal(problem):
    known = tuple(schedule for schedule in problem.job.schedules if schedule in SCHEDULES)
    problem = replace(problem, job=replace(problem.job, schedules=known or SCHEDULES))
    try:
        result = _solved(problem)
    except UnsupportedError:
        reject()
    assume(result.plan is not None)
    assert faults(CostModel(problem), result.plan) == ()
    assert all(len(stage.devices) == 1 for stage in result.plan.stages)
    assert result.own_objective.name.endswith(", s")


def test_slower_device_gets_fewer_layers():
    """6 layers, 1 s on the fast device, 2 s on the slow one: 4 and 2 take 4 s each; 5 and 1, or 3 and 3: 5 or 6 s."""
    result = _solved(next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain"))
    assert sorted(size for size, _ in _stages(result)) == [2, 4]
    assert result.own_objective.value == 4.0


def test_transfers_of_both_directions_count():
    """Three devices, 6 layers of 1 s, each boundary 1 s either way.

    The middle stage receives activations and gradients: 2 s more than its layers; the outer ones 1 s.
    2 + 2 + 2: 4 s. 2 + 1 + 3 and 3 + 1 + 2: 4 s. Less than 4 s would need at most 2 + 1 + 2 layers.
    """
    network = Link(bandwidth_bytes_per_s=1.0)
    problem = Problem(
        model=chain(6, {"gpu": 1.0}, output_bytes=1.0),
        cluster=one_device_per_server("gpu", "gpu", "gpu", network=network),
        job=job(6),
    )
    assert _solved(problem).own_objective.value == 4.0


def test_memory_bound_first_stage_holds_all_minibatches():
    """4 layers that save 1 byte each, two devices of 4 bytes, M = 4: under 1F1B the first stage holds two.

    Recomputation is off. 2 + 2 layers: 2 x 2 and 1 x 2 bytes fit.
    With 3 bytes 2 + 2 does not; 1 + 3 does, 2 x 1 and 1 x 3 bytes, and its slowest stage takes 3 s.
    """
    for memory_bytes, slowest_s in ((4.0, 2.0), (3.0, 3.0)):
        problem = Problem(
            model=chain(4, {"gpu": 1.0}, saved_bytes=1.0),
            cluster=one_device_per_server("gpu", "gpu", memory_bytes=memory_bytes),
            job=job(4, recompute=Recompute.NEVER),
        )
        assert _solved(problem).own_objective.value == slowest_s


def test_equal_distribution_gives_each_worker_a_device_of_each_node():
    """Two unlike nodes of two devices: with two pipelines each has one fast and one slow device."""
    servers = tuple(Server(name=kind, islands=(Island(device_type=kind, count=2),)) for kind in ("fast", "slow"))
    cluster = Cluster(name="nodes", device_types=kinds(fast=math.inf, slow=math.inf), servers=servers)
    problem = Problem(
        model=chain(6, {"fast": 1.0, "slow": 2.0}), cluster=cluster, job=job(4, pipelines=(2,), replicas=(1,))
    )
    plan = _solved(problem).plan
    for pipeline in plan.pipelines:
        assert sorted(device.split("/")[0] for stage in pipeline.stages for device in stage.devices) == ["fast", "slow"]


def test_runs_on_no_path_are_left_out():
    """Two stages, three layers: [0, 1) and [0, 2) may begin, but only [2, 3) may end."""
    allowed = np.zeros((2, 4, 4), dtype=bool)
    allowed[0, 0, 1] = allowed[0, 0, 2] = allowed[1, 2, 3] = True
    assert np.argwhere(on_a_path(allowed)).tolist() == [[0, 0, 2], [1, 2, 3]]


def test_worker_with_more_devices_than_layers_is_passed_over():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(2))
    assert _solved(problem).plan is None


def test_job_without_alternating_schedules_is_refused():
    problem = fast_and_slow()
    gpipe = replace(problem, job=replace(problem.job, schedules=(Schedule.GPIPE,)))
    with pytest.raises(UnsupportedError, match=r"hetpipe.*1f1b and eager-1f1b, but the job allows gpipe"):
        _solved(gpipe)


def test_job_without_single_devices_is_refused():
    problem = fast_and_slow()
    pairs = replace(problem, job=replace(problem.job, replicas=(2,)))
    with pytest.raises(UnsupportedError, match="each stage on a single device"):
        _solved(pairs)
