"""Alpa's latency, against every division of small models."""

import math

import numpy as np
import pytest

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.numerics.tolerances import ALPA_LATENCY
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.papers.alpa import Alpa
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import GRADIENTS, WEIGHTS_ONLY, chain, job, one_device_per_server, one_server
from tests.uniform_problems import random_uniform_problem

ROUNDING = 1e-9


def divided_by(problem, **choices):
    """Alpa's answer to a problem of one variant."""
    return run(problem, "alpa", SolveOptions(**choices))


def shapes(plan):
    """Layers, replicas and degree of every stage."""
    return [(stage.stop - stage.start, stage.replicas, stage.tensor_parallel) for stage in plan.stages]


def stage_s(variant, uniform, size, start, stop, position):
    """Seconds of a stage on the fastest group of this many devices; infinite if none is allowed or fits."""
    problem, depth = uniform.costs.problem, min(position, variant.num_microbatches)
    modes = {Recompute.NEVER: (False,), Recompute.ALWAYS: (True,), Recompute.AUTO: (False, True)}
    found_s = math.inf
    for degree in problem.tensor_parallel_degrees:
        replicas, rest = divmod(size, degree)
        on_servers = size <= uniform.devices_per_server or uniform.devices_per_server % degree == 0
        if rest or not on_servers or not problem.job.allows_replicas(replicas, variant.micro_batch):
            continue
        for recompute in modes[problem.job.recompute]:
            cost = uniform.stage_costs(
                UniformGroup(replicas=replicas, tensor_parallel=degree),
                micro_batch=variant.micro_batch,
                recompute=recompute,
                start=np.array([start]),
                stop=np.array([stop]),
            )
            need_bytes = cost.static_bytes[0] + depth * cost.saved_bytes[0] + cost.working_bytes[0]
            if need_bytes <= uniform.memory_bytes:
                sync_s = cost.sync_s[0] / variant.num_microbatches
                found_s = min(found_s, cost.forward_s[0] + cost.backward_s[0] + sync_s)
                break
    return found_s


def submeshes(uniform):
    """1, 2, 4 ... devices of a server, and whole servers: several only where all are alike."""
    width = uniform.devices_per_server
    parts = {size for size in (1, 2, 4, 8) if size < width}
    return parts | {width * servers for servers in range(1, uniform.most_servers_per_stage + 1)}


def every_division(sizes, num_layers, uniform, *, later=(), stop=None):
    """(start, stop, devices) of every stage of every plan that the servers have room for."""
    stop = num_layers if stop is None else stop
    for start in range(stop):
        for size in sizes:
            stages = ((start, stop, size), *later)
            if uniform.placements([UniformGroup(replicas=own) for _, _, own in stages]) is not None:
                if start == 0:
                    yield stages
                yield from every_division(sizes, num_layers, uniform, later=stages, stop=start)


def least_latency_s(variant, uniform):
    """The optimum, found by looking at every division."""
    known, best_s = {}, math.inf
    for stages in every_division(submeshes(uniform), uniform.costs.problem.model.num_layers, uniform):
        seconds = []
        for index, (start, stop, size) in enumerate(stages):
            key = (start, stop, size, len(stages) - index)
            if key not in known:
                known[key] = stage_s(variant, uniform, size, start, stop, len(stages) - index)
            seconds.append(known[key])
        best_s = min(best_s, sum(seconds) + (variant.num_microbatches - 1) * max(seconds))
    return best_s


@pytest.mark.parametrize("seed", range(60))
def test_no_division_has_a_smaller_latency(seed):
    search = Search(random_uniform_problem(seed), SolveOptions())
    ((variant, uniform), *_) = uniform_variants(search, "alpa", schedules=(Schedule.ONE_F_ONE_B,))
    alpa = Alpa(variant, uniform)
    found, least_s = alpa.divide(search), least_latency_s(variant, uniform)
    if found is None:
        assert math.isinf(least_s)
    else:
        assert least_s * (1 - ROUNDING) <= alpa.latency_s(found) <= least_s * (1 + 2 * ALPA_LATENCY)


@pytest.mark.parametrize(
    ("num_microbatches", "latency_s", "expected"), [(3, 16.0, [(1, 1, 1), (1, 1, 1)]), (1, 8.0, [(2, 1, 1)])]
)
def test_replicas_must_earn_their_all_reduce(num_microbatches, latency_s, expected):
    """2 layers of 2 s a sample, b = 2, on 2 devices; gradients of 2 layers of 3 bytes at 1 byte/s.

    On 2 replicas t = 2 layers x 2 s + 2 (2 - 1) / 2 x 6 bytes / B: with B = 3 that is 6 s, T = 3 x 6 = 18 s.
    Two stages have t = 4 s each, T = 8 + 2 x 4 = 16 s. With B = 1 replicas take 4 + 6 = 10 s, both layers
    on one device or on two 8 s.
    """
    problem = Problem(
        model=chain(2, {"gpu": 2.0}, params_bytes=6.0),
        cluster=one_server("gpu", 2, fabric=Link(bandwidth_bytes_per_s=1.0)),
        job=job(num_microbatches, micro_batch=2, optimizer=GRADIENTS),
    )
    result = divided_by(problem)
    assert result.own_objective.value == latency_s
    assert shapes(result.plan) == expected


def test_the_smallest_maximum_may_come_with_a_larger_sum():
    """Two layers on 3 devices, b = 2, B = 5: 6 and 5.5 s for both samples, 5 and 3 s for one of them.

    2 + 1 devices: t = 5 and 5.5 s, T = 10.5 + 4 x 5.5 = 32.5 s. 1 + 2: 6 and 3 s, T = 9 + 4 x 6 = 33 s.
    All layers on 2 devices: T = 5 x 8 = 40 s. 3 replicas do not divide 2 samples.
    """
    tables = (
        TimeTable(device_type="gpu", samples=(1, 2), forward_s=(2.5, 3.0), backward_s=(2.5, 3.0)),
        TimeTable(device_type="gpu", samples=(1, 2), forward_s=(1.5, 2.75), backward_s=(1.5, 2.75)),
    )
    layers = tuple(Layer(name=f"layer-{index}", times=(table,)) for index, table in enumerate(tables))
    model = ModelProfile(name="two", layers=layers)
    result = divided_by(Problem(model=model, cluster=one_server("gpu", 3), job=job(5, micro_batch=2)))
    assert result.own_objective.value == 32.5
    assert shapes(result.plan) == [(1, 2, 1), (1, 1, 1)]


def test_memory_counts_by_position():
    """4 equal layers that keep 1 byte each, devices of 3 bytes, B = 4: the first of two stages keeps k = 2 of each.

    So it holds one layer and the last one three: T = 8 + 3 x 6 = 26 s. On three devices the first may
    hold one layer (3 bytes), the second one (2) and the last two: T = 8 + 3 x 4 = 20 s.
    """
    choice = job(4, recompute=Recompute.NEVER)
    model, device = chain(4, {"gpu": 2.0}, saved_bytes=1.0), {"memory_bytes": 3.0}
    two = divided_by(Problem(model=model, cluster=one_device_per_server("gpu", "gpu", **device), job=choice))
    three = divided_by(Problem(model=model, cluster=one_device_per_server("gpu", "gpu", "gpu", **device), job=choice))
    assert (two.own_objective.value, shapes(two.plan)) == (26.0, [(1, 1, 1), (3, 1, 1)])
    assert (three.own_objective.value, shapes(three.plan)) == (20.0, [(1, 1, 1), (1, 1, 1), (2, 1, 1)])


def test_nothing_fits():
    problem = Problem(
        model=chain(2, {"gpu": 2.0}, params_bytes=6.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=2.0),
        job=job(2, optimizer=WEIGHTS_ONLY),
    )
    assert divided_by(problem).status is Status.NO_PLAN
