"""AutoPipe as a solver."""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.papers import autopipe
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, chain, job, kinds, layer, one_device_per_server, one_server

WITH_1F1B = [known for known in CATALOGUE if Schedule.ONE_F_ONE_B in known.problem.job.schedules]


def _sizes(result):
    return [stage.stop - stage.start for stage in result.plan.stages]


def _solve(problem, **options):
    return run(problem, "autopipe", SolveOptions(**options))


@pytest.mark.parametrize("known", WITH_1F1B, ids=lambda known: known.name)
def test_plans_are_legal_and_never_beat_the_known_optimum(known):
    result = _solve(known.problem)
    assert result.bound_s is None
    if known.optimum_s is None:
        assert result.status is Status.NO_PLAN
    else:
        assert faults(CostModel(known.problem), result.plan) == ()
        assert result.objective_s >= known.optimum_s


def test_published_partition_becomes_a_plan():
    """24 layers of F = B = 1.5 on 5 devices, M = 10.

    As in test_autopipe_time.py with b(3, 0) = 36 + 6, slot 8 with its backward at 42 + 8 x 15, then at
    max(162 + 7.5, 162 + 6 + 6) the last one, and four backwards of 7.5.
    """
    problem = Problem(model=chain(24, {"gpu": 3.0}), cluster=one_server("gpu", 5), job=job(10))
    result = _solve(problem)
    assert _sizes(result) == [5, 5, 5, 5, 4]
    assert result.own_objective.name == "iteration without synchronisation, s"
    assert result.own_objective.value == result.objective_s == 204.0


def test_messages_cost_what_their_links_take():
    """Two devices, messages of 1 s, M = 2, layers of F = B = 1.

    Two stages: b(1, 0) = 1 + 1 + 1, then f(1, 1) = 4 + 1 and b(1, 1) = 6, and 1 + 1 + 1 to the end: 9. One stage takes
    2 x 4.
    """
    network = Link(bandwidth_bytes_per_s=1.0)
    cluster = one_device_per_server("gpu", "gpu", network=network)
    problem = Problem(model=chain(2, {"gpu": 2.0}, output_bytes=1.0), cluster=cluster, job=job(2))
    assert _solve(problem).own_objective.value == 8.0
    times = autopipe.stage_times(*_first_variant(problem), UniformGroup(), num_stages=2, recompute=False)
    assert times.transfer_s.tolist() == [[0.0, 1.0, 0.0]]


def test_messages_inside_a_server_are_told_from_those_between():
    """Two servers of two devices: the second of three boundaries leaves a server."""
    island = Island(device_type="gpu", count=2, fabric=Link(bandwidth_bytes_per_s=4.0))
    cluster = Cluster(
        name="two",
        device_types=kinds(gpu=float("inf")),
        servers=(Server(name="host", count=2, islands=(island,)),),
        network=Link(bandwidth_bytes_per_s=1.0),
    )
    problem = Problem(model=chain(4, {"gpu": 2.0}, output_bytes=1.0), cluster=cluster, job=job(4))
    times = autopipe.stage_times(*_first_variant(problem), UniformGroup(), num_stages=4, recompute=False)
    assert times.transfer_s[:, 1].tolist() == [0.25, 1.0, 0.25]


def test_devices_are_taken_to_be_as_slow_as_the_slowest():
    """6 layers of 1 or 2 s: halves of 3 layers, 3 + 6 s of the first micro-batch and 3 more of 6.

    By itself AutoPipe counts 5 x 6.
    """
    cluster = one_device_per_server("fast", "slow")
    result = _solve(Problem(model=chain(6, {"fast": 1.0, "slow": 2.0}), cluster=cluster, job=job(4)))
    assert _sizes(result) == [3, 3]
    assert (result.objective_s, result.own_objective.value) == (27.0, 30.0)


@pytest.mark.parametrize(("memory_bytes", "sizes", "over_memory"), [(4.0, [1, 1], 0), (3.0, [2], 1), (2.0, None, 2)])
def test_numbers_of_stages_over_memory_are_passed_over(memory_bytes, sizes, over_memory):
    """Two layers keep 2 and 1 bytes: as two stages the first one keeps 2 x 2 bytes, as one stage both keep 3."""
    layers = tuple(layer(f"keeps {size}", {"gpu": 2.0}, saved_bytes=size) for size in (2.0, 1.0))
    problem = Problem(
        model=ModelProfile(name="pair", layers=layers),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=memory_bytes),
        job=job(4, recompute=Recompute.NEVER),
    )
    result = _solve(problem)
    assert (result.plan and _sizes(result)) == sizes
    assert dict(result.counts).get("numbers of stages over memory", 0) == over_memory


def test_layers_are_timed_with_recomputation_where_stages_need_it():
    """One device, 3 layers of 1 + 1 s that keep 4 bytes each: 6 bytes hold the recomputing stage only, see `catalogue`.

    AutoPipe counts 2 micro-batches of 3 x (1 + 2) s.
    """
    known = next(known for known in CATALOGUE if known.name == "recomputation forced")
    result = _solve(known.problem)
    assert [stage.recompute for stage in result.plan.stages] == [True]
    assert result.own_objective.value == 18.0
    never = replace(known.problem, job=replace(known.problem.job, recompute=Recompute.NEVER))
    assert _solve(never).status is Status.NO_PLAN


def test_smallest_groups_that_the_job_allows_are_used():
    """Replicas of 2 only: 5 devices make two groups."""
    problem = Problem(
        model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 5), job=job(4, micro_batch=4, replicas=(4, 2))
    )
    assert [stage.replicas for stage in _solve(problem).plan.stages] == [2, 2]


def test_whole_pipelines_are_tried():
    """Two pipelines of one device, see `catalogue`: 16 s instead of 20."""
    known = next(known for known in CATALOGUE if known.name == "several pipelines")
    result = _solve(known.problem)
    assert result.plan.share.num_pipelines == 2
    assert result.objective_s == 16.0


def test_floor_is_the_time_of_stages_that_are_all_busy_until_the_end():
    """M = 2 on 2 stages: 2 and 1 s of work, 2 x 2 and 2 + 2 x 1 s."""
    assert autopipe.floor_s(3.0, num_stages=2, num_microbatches=2) == 4.0


def _first_variant(problem):
    search = Search(problem, SolveOptions())
    ((variant, uniform),) = uniform_variants(search, "autopipe", schedules=(Schedule.ONE_F_ONE_B,))
    return uniform, variant
