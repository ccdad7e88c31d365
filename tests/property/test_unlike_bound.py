"""The fluid bound on unlike pipelines is below every plan that can be played, and says what it should by hand."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from benchmarks.unlike_pipelines.fluid import PRECISION, STEPS, best_prices, fluid_bound_s
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.property.strategies import clusters, problems

ROUNDING = 1e-9
EXACT = SolveOptions(gap=0.0, time_limit_s=None)


def fastest_s(problem):
    """The least simulated time of all plans; infinite without one."""
    found = run(problem, "brute-force", EXACT).objective_s
    return float("inf") if found is None else found


@settings(max_examples=25)
@given(problems(max_layers=5, max_micro_batches=6))
def test_no_alike_pipelines_are_faster_than_the_fluid_bound(problem):
    problem = replace(problem, job=replace(problem.job, zero1=False))
    found_s = fastest_s(problem)
    assume(0 < found_s < float("inf"))
    assert fluid_bound_s(problem, at_most_s=2 * found_s) <= found_s * (1 + ROUNDING)


@settings(max_examples=20)
@given(problems(max_layers=4, max_devices=3, several_pipelines=False), clusters(max_devices=3, tables=False), st.data())
def test_no_two_unlike_groups_are_faster_than_the_fluid_bound(problem, others, data):
    """Each has hosts, samples and a micro-batch size of its own; without gradients to sum, the slower one decides."""
    hosts = problem.cluster.servers
    more = tuple(replace(server, name=f"other {server.name}") for server in others.servers)
    cluster = replace(problem.cluster, servers=hosts + more)
    optimizer = replace(problem.job.optimizer, gradient_bytes=0.0)
    job = replace(problem.job, zero1=False, optimizer=optimizer)
    slower_s, samples, sizes = 0.0, 0, set()
    for servers in (hosts, more):
        size, number = data.draw(st.sampled_from((1, 2, 4))), data.draw(st.integers(1, 3))
        own = replace(job, global_batch=size * number, micro_batches=(size,))
        group = Problem(model=problem.model, cluster=replace(cluster, servers=servers, overrides=()), job=own)
        slower_s = max(slower_s, fastest_s(group))
        samples, sizes = samples + size * number, sizes | {size}
    assume(0 < slower_s < float("inf"))
    both = replace(job, global_batch=samples, micro_batches=(*sizes, *({1} - sizes)))
    whole = Problem(model=problem.model, cluster=cluster, job=both)
    assert fluid_bound_s(whole, at_most_s=2 * slower_s) <= slower_s * (1 + ROUNDING)


def test_devices_of_speeds_3_and_1_share_8_samples_as_6_and_2():
    """A sample takes 1 s or 3 s: 6 samples on the fast one and 2 on the slow one end after 6 s."""
    bound_s = fluid_bound_s(chain(seconds=(1.0, 3.0), num_layers=1), at_most_s=100.0)
    assert 6.0 - 100 * PRECISION <= bound_s <= 6.0


def test_a_second_stage_starts_late():
    """Two layers of 1 s, two devices that hold one each, 8 samples. With one stage after the other, shares z of the
    devices suffice for T where z1 = 8 / T, z2 = 8 / (T - 1) and z1 + z2 = 2: T^2 - 9 T + 4 = 0, T = (9 + sqrt 65) / 2.
    Rounding W down to a multiple of T / STEPS shortens that by a step at most."""
    exact_s = (9 + np.sqrt(65)) / 2
    bound_s = fluid_bound_s(chain(seconds=(1.0, 1.0), num_layers=2, params_bytes=1.0), at_most_s=20.0)
    assert exact_s * (1 - 1 / STEPS) - 20 * PRECISION <= bound_s <= exact_s


def test_prices_make_the_cheapest_path_dearest():
    """Paths (2, 0) and (0, 1): lambda = (1/3, 2/3) makes both 2/3 long."""
    prices, length = best_prices(np.array([[2.0, 0.0], [0.0, 1.0]]))
    assert prices == pytest.approx([1 / 3, 2 / 3], abs=1e-5)
    assert length == pytest.approx(2 / 3, abs=1e-5)


@pytest.mark.parametrize("change", [{"slice": 1}, {"unequal": True}, {"zero1": True}])
def test_jobs_that_the_derivation_does_not_cover_are_refused(change):
    problem = chain(seconds=(1.0, 1.0), num_layers=1)
    with pytest.raises(ValueError, match="whole, equal micro-batches"):
        fluid_bound_s(replace(problem, job=replace(problem.job, **change)), at_most_s=10.0)


def chain(*, seconds, num_layers, params_bytes=0.0):
    """Equal layers and two devices with these seconds of F + B per sample; each can hold one byte of parameters."""
    names = ("first", "second")
    tables = tuple(
        TimeTable(device_type=name, samples=(1,), forward_s=(total / 4,), backward_s=(3 * total / 4,))
        for name, total in zip(names, seconds, strict=True)
    )
    layers = tuple(Layer(name=f"layer {i}", params_bytes=params_bytes, times=tables) for i in range(num_layers))
    optimizer = Optimizer(name="none", weight_bytes=2.0, gradient_bytes=0.0, state_bytes=0.0)
    kinds = tuple(DeviceType(name=name, peak_flops_per_s=(), memory_bytes=1.5) for name in names)
    servers = tuple(Server(name=name, islands=(Island(device_type=name, count=1),)) for name in names)
    return Problem(
        model=ModelProfile(name="chain", layers=layers, precision=Precision.FP16),
        cluster=Cluster(name="two", device_types=kinds, servers=servers),
        job=Job(global_batch=8, optimizer=optimizer, micro_batches=(1,)),
    )
