"""PipeDream's planner, against an enumeration of all its pipelines."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.cluster import UNLIMITED, Cluster, Island, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.problem import Problem
from stagecut.planner.solvers.papers.pipedream import OBJECTIVE, solve
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup, uniform_cluster
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, WEIGHTS_ONLY, chain, job, kinds, layer, one_server
from tests.hybrid_pipelines import HybridStage, hybrid_pipelines


def _solve(problem):
    return solve(problem, Search(problem, SolveOptions()))


def _servers(count, size, *, fabric=UNLIMITED, network=UNLIMITED, memory_bytes=np.inf):
    """Equal servers, each with so many devices."""
    server = Server(name="host", islands=(Island(device_type="gpu", count=size, fabric=fabric),), count=count)
    return Cluster(name="equal", device_types=kinds(gpu=memory_bytes), servers=(server,), network=network)


def _plain_and_heavy():
    """A layer of 2 s per sample without weights, then one of 1 s with 8 bytes of them; a cut moves 0.25 bytes."""
    layers = (
        layer("plain", {"gpu": 2.0}, output_bytes=0.25),
        layer("heavy", {"gpu": 1.0}, params_bytes=8.0),
    )
    return ModelProfile(name="two", layers=layers)


def test_weights_stay_on_one_device_while_plain_layers_are_replicated():
    """Micro-batches of 2 samples: 4 s / 2 replicas, then 2 s on one device; the transfers take 2 x 0.5 s: 1 s a sample.

    In one stage: 6 s; on two devices (6 + 4 / 2 x 8) / 2 = 11. Without replicas 4; with two of the heavy layer 9.
    """
    cluster = one_server("gpu", 3, fabric=Link(bandwidth_bytes_per_s=1.0))
    result = _solve(Problem(model=_plain_and_heavy(), cluster=cluster, job=job(3, micro_batch=2)))
    assert [stage.devices for stage in result.plan.stages] == [("host/0", "host/1"), ("host/2",)]
    assert (result.own_objective.name, result.own_objective.value) == (OBJECTIVE, 1.0)


def test_stage_takes_several_servers_where_all_their_devices_are_replicas():
    """Micro-batches of 4 samples: 8 s / (2 x 2), then (4 + 4 / 2 x 8 / 16) s / 2 on the third server: 0.625 s a sample.

    The cut takes 2 x 1 byte at 1 byte/s.
    """
    cluster = _servers(3, 2, fabric=Link(bandwidth_bytes_per_s=16.0), network=Link(bandwidth_bytes_per_s=1.0))
    result = _solve(Problem(model=_plain_and_heavy(), cluster=cluster, job=job(3, micro_batch=4)))
    assert [stage.devices for stage in result.plan.stages] == [
        ("host-0/0", "host-0/1", "host-1/0", "host-1/1"),
        ("host-2/0", "host-2/1"),
    ]
    assert result.own_objective.value == 0.625


def test_whole_pipelines_are_replicated_over_servers():
    """A pipeline of 2 + 2 s in each of two servers: (2 + 4 / 2 x 6 bytes / 2 bytes/s / 2 devices) / 2 = 2.5 s.

    Only two pipelines are allowed. The weights are 3 x 2 bytes; the micro-batch is one sample.
    """
    model = chain(2, {"gpu": 2.0}, params_bytes=3.0)
    cluster = _servers(2, 2, network=Link(bandwidth_bytes_per_s=2.0))
    result = _solve(Problem(model=model, cluster=cluster, job=job(4, pipelines=(2,))))
    assert [len(pipeline.stages) for pipeline in result.plan.pipelines] == [2, 2]
    assert result.own_objective.value == 2.5


def test_plain_data_parallelism_crosses_both_levels():
    """4 s on each of 2 x 2 devices: (4 + 2 x 6 / 2) / 2 = 5 in a server, (5 + 2 x 6 / 1 / 2) / 2 = 5.5 s over both."""
    model = chain(2, {"gpu": 2.0}, params_bytes=3.0)
    cluster = _servers(2, 2, fabric=Link(bandwidth_bytes_per_s=2.0), network=Link(bandwidth_bytes_per_s=1.0))
    result = _solve(Problem(model=model, cluster=cluster, job=job(4, pipelines=(4,))))
    assert [len(pipeline.stages) for pipeline in result.plan.pipelines] == [1] * 4
    assert result.own_objective.value == 5.5


def test_plan_that_does_not_fit_under_1f1b_is_made_again_for_more_in_flight():
    """Layers of 1, 1, 1, 3 s that save 1 byte each; two devices of 4 bytes: 3 + 1 layers would be best.

    But the first stage has two micro-batches in flight, 6 bytes. With two in flight 2 + 2 layers fit.
    """
    layers = tuple(
        layer(f"layer-{index}", {"gpu": seconds}, saved_bytes=1.0) for index, seconds in enumerate((1.0, 1.0, 1.0, 3.0))
    )
    problem = Problem(
        model=ModelProfile(name="late", layers=layers),
        cluster=one_server("gpu", 2, memory_bytes=4.0),
        job=job(4, recompute=Recompute.NEVER),
    )
    result = _solve(problem)
    assert [stage.stop for stage in result.plan.stages] == [2, 4]
    assert result.own_objective.value == 4.0


def _random_problem(seed, *, memory_bytes=np.inf):
    rng = np.random.default_rng(seed)
    layers = tuple(
        layer(
            f"layer-{index}",
            {"gpu": float(rng.integers(1, 9))},
            params_bytes=float(rng.integers(0, 9)),
            output_bytes=float(rng.integers(0, 5)),
        )
        for index in range(rng.integers(2, 6))
    )
    cluster = _servers(
        int(rng.integers(1, 4)),
        int(rng.integers(1, 4)),
        fabric=Link(bandwidth_bytes_per_s=8.0, latency_s=float(rng.choice([0.0, 0.5]))),
        network=Link(bandwidth_bytes_per_s=2.0),
        memory_bytes=memory_bytes,
    )
    size = int(rng.choice([1, 2, 4, 6]))
    own = job(4, micro_batch=size, optimizer=WEIGHTS_ONLY, recompute=Recompute.NEVER)
    return Problem(model=ModelProfile(name="random", layers=layers), cluster=cluster, job=own)


def _replicated_s(inner_s, weight_bytes, link, number):
    return (inner_s + 4 * (number - 1) * weight_bytes / (link.bandwidth_bytes_per_s * number)) / number


def _slowest_s(uniform, variant, pipeline):
    """The slowest stage or transfer of a pipeline, server by server; infinite where a stage does not fit."""
    model, size = uniform.costs.problem.model, uniform.devices_per_server
    crossing = variant.micro_batch * model.boundary_bytes()

    def behind_a_cut(seconds, link, start, stop, number):
        return max(seconds, *(2 * crossing[end] / (link.bandwidth_bytes_per_s * number) for end in (start, stop)))

    def in_server(stage, *, first):
        where = {"start": np.array([stage.start]), "stop": np.array([stage.stop])}
        choices = {"micro_batch": variant.micro_batch, "recompute": False}
        cost = uniform.stage_costs(UniformGroup(), **choices, **where)
        own = uniform.stage_costs(UniformGroup(replicas=stage.replicas), **choices, **where)
        if own.memory_bytes(np.array([1]))[0] > uniform.memory_bytes:
            return np.inf
        number = min(size, stage.replicas)
        compute_s, weight_bytes = (
            float(cost.forward_s[0] + cost.backward_s[0]),
            _weights(model, stage.start, stage.stop),
        )
        seconds = _replicated_s(compute_s, weight_bytes, uniform.inside, number)
        return seconds if first else behind_a_cut(seconds, uniform.inside, stage.start, stage.stop, number)

    values = []
    for run in _by_server(pipeline):
        start, stop, number = run[0].start, run[-1].stop, max(1, run[0].replicas // size)
        inner_s = max(in_server(stage, first=index == 0) for index, stage in enumerate(run))
        weight_bytes = _weights(model, start, stop)
        if start == 0:
            values.append(_replicated_s(inner_s, weight_bytes / size, uniform.between, number))
        else:
            seconds = _replicated_s(inner_s, weight_bytes, uniform.between, number)
            values.append(behind_a_cut(seconds, uniform.between, start, stop, number))
    return max(values)


def _weights(model, start, stop):
    return sum(each.params_bytes for each in model.layers[start:stop])


def _by_server(pipeline):
    """Stages that share a server, or the one that has several."""
    runs = []
    for stage in pipeline:
        if stage.opens or not runs:
            runs.append([])
        runs[-1].append(stage)
    return runs


def _as_pipeline(plan):
    """Stages of a plan as the enumeration has them."""
    hosts = [{device.rpartition("/")[0] for device in stage.devices} for stage in plan.stages]
    opens = [index == 0 or hosts[index] != hosts[index - 1] for index in range(len(hosts))]
    return [
        HybridStage(start=stage.start, stop=stage.stop, replicas=stage.replicas, opens=fresh)
        for stage, fresh in zip(plan.stages, opens, strict=True)
    ]


@pytest.mark.parametrize("memory_bytes", [np.inf, 8.0])
@pytest.mark.parametrize("seed", range(20))
def test_slowest_stage_is_the_shortest_of_all_pipelines(seed, memory_bytes):
    """The enumeration knows no levels; the plan itself is measured by it, too. Nothing is kept for a backward."""
    problem = _random_problem(seed, memory_bytes=memory_bytes)
    search = Search(problem, SolveOptions())
    (variant,) = problem.variants
    uniform = uniform_cluster(search.costs.of(variant.share), "pipedream")
    replicas, num_layers = uniform.replicas(variant.micro_batch), problem.model.num_layers
    every = hybrid_pipelines(num_layers, uniform.num_servers, uniform.devices_per_server, replicas)
    least_s = min((_slowest_s(uniform, variant, pipeline) for pipeline in every), default=np.inf)
    result = solve(problem, search)
    if np.isinf(least_s):
        assert result.plan is None
    else:
        assert result.own_objective.value * variant.micro_batch == pytest.approx(least_s, rel=1e-12)
        assert _slowest_s(uniform, variant, _as_pipeline(result.plan)) == pytest.approx(least_s, rel=1e-12)


def test_stages_span_servers_of_one_class_only():
    """Three classes of one server each: the plain layer stays on one of them, on its only device."""
    servers = tuple(Server(name=f"host-{index}", islands=(Island(device_type="gpu", count=1),)) for index in range(3))
    cluster = Cluster(name="apart", device_types=kinds(gpu=np.inf), servers=servers)
    result = _solve(Problem(model=_plain_and_heavy(), cluster=cluster, job=job(3, micro_batch=2)))
    assert [stage.replicas for stage in result.plan.stages] == [1, 1]


def test_numbers_of_pipelines_it_cannot_think_of_are_refused():
    """Four servers of two devices: one pipeline, four or eight; not two."""
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=_servers(4, 2), job=job(4, pipelines=(2,)))
    with pytest.raises(UnsupportedError, match="allow pipelines of 1, 4, 8"):
        _solve(problem)


def test_simulator_picks_among_micro_batch_sizes():
    """Both sizes have slowest stages of 4 s a sample; with one sample the pipeline of 2 stages fills in less time."""
    problem = next(known.problem for known in CATALOGUE if known.name == "two equal devices, 1f1b")
    both = replace(problem.job, micro_batches=(4, 1), replicas=(1,))
    result = _solve(replace(problem, job=both))
    assert result.plan.micro_batch == 1
    assert (result.own_objective.value, result.objective_s) == (4.0, 20.0)
