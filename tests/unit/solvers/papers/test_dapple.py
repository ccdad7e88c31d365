"""DAPPLE's planner, against an enumeration of all its pipelines and the formulas written out."""

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.papers.dapple import Dapple, solve
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup, uniform_cluster
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, GRADIENTS, NOTHING_KEPT, chain, job, kinds, layer, one_server
from tests.hybrid_pipelines import hybrid_pipelines, occupied


def _solve(problem):
    return solve(problem, Search(problem, SolveOptions()))


def _three_devices():
    """6 s of work per micro-batch of 2 samples, then a cut of 1 s, then 4 s of work with 5 bytes of gradients."""
    layers = (
        layer("plain", {"gpu": 3.0}, output_bytes=0.5),
        layer("heavy", {"gpu": 2.0}, params_bytes=10.0),
    )
    return Problem(
        model=ModelProfile(name="two", layers=layers),
        cluster=one_server("gpu", 3, fabric=Link(bandwidth_bytes_per_s=1.0)),
        job=job(3, micro_batch=2, optimizer=GRADIENTS),
    )


def _candidates(problem):
    search = Search(problem, SolveOptions())
    (variant,) = problem.variants
    uniform = uniform_cluster(search.costs.of(variant.share), "dapple")
    return uniform, Dapple(variant, uniform).candidates(search)


def test_pivot_and_all_reduces_decide_the_latency():
    """Stages as (F, B, AR), the transfer between them (1, 1, 0); M = 3. Q starts as the last stage.

    - replicas (1, 1): (3, 3, 0), (2, 2, 0). The first one takes over, 2 x 6 > 2 x 4 + 2: Tw = 3, Ts = 12 and
      Te = max(3, -3 - 1, -3 - 1 - 2), in all 18.
    - (2, 1): (1.5, 1.5, 0), (2, 2, 0). It does not, 6 < 8 + 2: Tw = 4.5, Ts = 8, Te = 1.5 + 1 + 2, in all 17. The
      slowest stage takes 4, where (1, 2) has one of 6 on as many devices.
    - one stage: 5 x 3 x 2 = 30; on two devices 2.5 x 3 x 2 and 5 for its gradients, 20.
    """
    problem = _three_devices()
    _, found = _candidates(problem)
    assert {each.replicas: each.latency_s for each in found} == {(1,): 30.0, (2,): 20.0, (1, 1): 18.0, (2, 1): 17.0}
    result = _solve(problem)
    assert [stage.replicas for stage in result.plan.stages] == [2, 1]
    assert (result.own_objective.name, result.own_objective.value) == ("latency, s", 17.0)


def test_equal_stages_without_transfers_take_their_simulated_time():
    """(M + S - 1) x 4 s for two stages of two layers of 2 s each, M = 4."""
    result = _solve(next(known.problem for known in CATALOGUE if known.name == "two equal devices, 1f1b"))
    assert result.own_objective.value == result.objective_s == 20.0


@pytest.mark.parametrize("slow, latency_s", [(0, 24.0), (1, 26.0)])
def test_pivot_is_a_stage_in_front_where_it_is_slower_than_all_behind(slow, latency_s):
    """Three stages of F + B = 2, but the `slow` one 8; M = 3. It takes over: 2 x 8 > 2 x 2 + 2 at most.

    The first one: Tw = 4, Ts = 2 x 8, Te = 4. The second: Tw = 1 + 4, Ts = 16, Te = 4 + 1.
    """
    layers = tuple(layer(f"layer-{index}", {"gpu": 8.0 if index == slow else 2.0}) for index in range(3))
    problem = Problem(model=ModelProfile(name="three", layers=layers), cluster=one_server("gpu", 3), job=job(3))
    _, found = _candidates(problem)
    assert [each.latency_s for each in found if each.num_stages == 3] == [latency_s]


def _random_problem(seed, *, memory_bytes=float("inf"), recompute=Recompute.NEVER):
    rng = np.random.default_rng(seed)
    layers = tuple(
        layer(
            f"layer-{index}",
            {"gpu": float(rng.integers(1, 9))},
            forward_share=float(rng.choice([0.25, 0.5])),
            params_bytes=float(rng.integers(0, 9)),
            saved_bytes=float(rng.integers(0, 5)),
            output_bytes=float(rng.integers(0, 5)),
        )
        for index in range(rng.integers(2, 6))
    )
    island = Island(device_type="gpu", count=int(rng.integers(1, 4)), fabric=Link(bandwidth_bytes_per_s=8.0))
    server = Server(name="host", islands=(island,), count=int(rng.integers(1, 4)), nic=Link(bandwidth_bytes_per_s=2.0))
    cluster = Cluster(name="equal", device_types=kinds(gpu=memory_bytes), servers=(server,))
    size = int(rng.choice([1, 2, 4]))
    own = job(int(rng.integers(1, 9)), micro_batch=size, optimizer=GRADIENTS, recompute=recompute)
    return Problem(model=ModelProfile(name="random", layers=layers), cluster=cluster, job=own)


def _stage_times(uniform, variant, stage, position):
    """(F, B, AR) of a stage as the job has it recompute; None where it does not fit."""
    modes = {Recompute.NEVER: (False,), Recompute.AUTO: (False, True)}[uniform.costs.problem.job.recompute]
    depth = np.array([min(position, variant.num_microbatches)])
    for mode in modes:
        cost = uniform.stage_costs(
            UniformGroup(replicas=stage.replicas),
            micro_batch=variant.micro_batch,
            recompute=mode,
            start=np.array([stage.start]),
            stop=np.array([stage.stop]),
        )
        if cost.memory_bytes(depth)[0] <= uniform.memory_bytes:
            return float(cost.forward_s[0]), float(cost.backward_s[0]), float(cost.sync_s[0])
    return None


def _with_transfers(uniform, variant, pipeline):
    """(F, B, AR) of all stages and transfers in order; None where a stage does not fit."""
    times, boundary_bytes = [], uniform.costs.problem.model.boundary_bytes()
    for index, stage in enumerate(pipeline):
        own = _stage_times(uniform, variant, stage, len(pipeline) - index)
        if own is None:
            return None
        if index:
            link = uniform.between if stage.opens else uniform.inside
            transfer_s = link.transfer_s(variant.micro_batch * boundary_bytes[stage.start])
            times.append((transfer_s, transfer_s, 0.0))
        times.append(own)
    return times


def _latency_s(times, num_microbatches):
    """L as the module's docstring has it, term by term."""
    work = [forward_s + backward_s for forward_s, backward_s, _ in times]
    pivot = len(times) - 1
    for stage in range(pivot - 1, -1, -1):
        between_s = sum(work[stage + 1 : pivot])
        if (num_microbatches - 1) * work[stage] > (num_microbatches - 1) * work[pivot] + between_s:
            pivot = stage
    ends = [
        sync_s + sum(backward_s for _, backward_s, _ in times[stage : pivot + 1])
        if stage <= pivot
        else sync_s - sum(backward_s for _, backward_s, _ in times[pivot : stage + 1])
        for stage, (_, _, sync_s) in enumerate(times)
    ]
    ramp_s = sum(forward_s for forward_s, _, _ in times[: pivot + 1])
    return ramp_s + (num_microbatches - 1) * work[pivot] + max(ends)


def _enumerated(uniform, variant):
    """Yield (number of stages, occupied set), V and L of every pipeline that fits."""
    for pipeline in hybrid_pipelines(
        uniform.costs.problem.model.num_layers,
        uniform.num_servers,
        uniform.devices_per_server,
        uniform.replicas(variant.micro_batch),
    ):
        times = _with_transfers(uniform, variant, pipeline)
        if times is not None:
            state = (len(pipeline), *occupied(pipeline, uniform.devices_per_server))
            slowest_s = max(forward_s + backward_s for forward_s, backward_s, _ in times)
            yield pipeline, state, slowest_s, _latency_s(times, variant.num_microbatches)


def _as_enumerated(candidate):
    starts = (0, *candidate.stops[:-1])
    return tuple(zip(starts, candidate.stops, candidate.replicas, candidate.opens, strict=True))


@pytest.mark.parametrize("memory_bytes, recompute", [(np.inf, Recompute.NEVER), (40.0, Recompute.AUTO)])
@pytest.mark.parametrize("seed", range(12))
def test_candidates_have_the_least_slowest_stage_of_all_pipelines_with_as_many_stages_on_as_many_devices(
    seed, memory_bytes, recompute
):
    problem = _random_problem(seed, memory_bytes=memory_bytes, recompute=recompute)
    uniform, found = _candidates(problem)
    (variant,) = problem.variants
    least, known = {}, {}
    for pipeline, state, slowest_s, latency_s in _enumerated(uniform, variant):
        least[state] = min(slowest_s, least.get(state, np.inf))
        known[pipeline] = (state, slowest_s, latency_s)
    states = [known[_as_enumerated(candidate)][0] for candidate in found]
    assert sorted(states) == sorted(least)
    for candidate, state in zip(found, states, strict=True):
        _, slowest_s, latency_s = known[_as_enumerated(candidate)]
        assert slowest_s == pytest.approx(least[state], rel=1e-12)
        assert candidate.latency_s == pytest.approx(latency_s, rel=1e-12)


def test_latency_is_often_but_not_always_the_least_of_all_pipelines():
    """The program minimises the slowest stage, and the latency picks among few plans: figures of the module."""
    ratios = []
    for seed in range(40):
        problem = _random_problem(seed)
        uniform, found = _candidates(problem)
        (variant,) = problem.variants
        least_s = min(latency_s for *_, latency_s in _enumerated(uniform, variant))
        ratios.append(min(found).latency_s / least_s)
    assert min(ratios) >= 1 - 1e-12
    assert sum(ratio < 1 + 1e-9 for ratio in ratios) == 33
    assert (round(np.mean(ratios), 3), round(max(ratios), 3)) == (1.012, 1.153)


def test_plan_of_the_least_latency_is_offered():
    """If there is a single variant and all servers are alike, it is the first candidate in order."""
    problem = _random_problem(3)
    _, found = _candidates(problem)
    result = _solve(problem)
    best = min(found)
    assert result.own_objective.value == best.latency_s
    assert [(stage.stop, stage.replicas) for stage in result.plan.stages] == [
        *zip(best.stops, best.replicas, strict=True)
    ]


def test_whole_model_is_replicated_as_pipelines_of_its_own():
    """Two pipelines of one device each: 2 of 4 micro-batches, 2 x 8 s, and 2 (2 - 1) / 2 x 4 bytes at 2 bytes/s."""
    problem = next(known.problem for known in CATALOGUE if known.name == "synchronised pipelines")
    result = _solve(problem)
    assert len(result.plan.pipelines) == 2
    assert result.own_objective.value == result.objective_s == 18.0


def test_jobs_that_ask_for_tensor_parallelism_are_refused():
    problem = Problem(
        model=chain(2, {"gpu": 1.0}, tensor_parallel_bytes=1.0),
        cluster=one_server("gpu", 2),
        job=job(2, tensor_parallel=(2,), optimizer=NOTHING_KEPT),
    )
    with pytest.raises(UnsupportedError, match="solver 'dapple': does not support tensor parallelism"):
        _solve(problem)
