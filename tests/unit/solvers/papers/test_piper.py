"""Piper's time per sample, against every division of small models."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.model import SkipEdge
from stagecut.planner.core.numerics.tolerances import PIPER_LOAD
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.layer_times import parts
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.papers.piper import Piper, largest_load_s
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import chain, job, kinds, layer, one_device_per_server, one_server
from tests.uniform_problems import random_uniform_problem


def divided_by(problem, **choices):
    """Piper's plan for a problem of one variant."""
    return run(problem, "piper", SolveOptions(**choices))


def shapes(plan):
    """Layers, replicas and degree of every stage."""
    return [(stage.stop - stage.start, stage.replicas, stage.tensor_parallel) for stage in plan.stages]


def kept_configuration_s(layers, *, limit_bytes, policy):
    """Seconds of layers (plain_s, lost_s, plain_bytes, recomputed_bytes), best saving first; infinite without room."""
    chosen = [policy is Recompute.ALWAYS] * len(layers)
    swaps = [i for i, (_, _, plain, recomputed) in enumerate(layers) if plain > recomputed]
    swaps.sort(key=lambda i: layers[i][1] / (layers[i][2] - layers[i][3]))
    while True:
        if sum(own[3] if again else own[2] for own, again in zip(layers, chosen, strict=True)) <= limit_bytes:
            return sum(own[0] + again * own[1] for own, again in zip(layers, chosen, strict=True))
        if not swaps or policy is not Recompute.AUTO:
            return math.inf
        chosen[swaps.pop(0)] = True


def load_s(variant, uniform, group, start, stop, *, replicas):
    """The formula of the docstring, layer by layer."""
    model, policy = uniform.costs.problem.model, uniform.costs.problem.job.recompute

    def costs(recompute, first, last):
        size = variant.micro_batch * group.replicas
        ends = {"start": np.array([first]), "stop": np.array([last])}
        return uniform.stage_costs(group, micro_batch=size, recompute=recompute, **ends)

    kept, layers = min(math.ceil(replicas / group.replicas), variant.num_microbatches), []
    for index in range(start, stop):
        plain, again = (costs(recompute, index, index + 1) for recompute in (False, True))
        seconds = (plain.forward_s[0] + plain.backward_s[0]) / group.replicas
        lost_s = (again.backward_s[0] - plain.backward_s[0]) / group.replicas
        sizes = [own.static_bytes[0] + kept * own.saved_bytes[0] + own.working_bytes[0] for own in (plain, again)]
        layers.append((seconds, lost_s, *sizes))
    compute_s = kept_configuration_s(layers, limit_bytes=uniform.memory_bytes, policy=policy)
    edges = [(index, index + 1, own.output_bytes) for index, own in enumerate(model.layers[:-1])]
    edges += [(edge.source, target, edge.num_bytes) for edge in model.skip_edges for target in edge.targets]
    cut = sum(size for source, target, size in edges if (start <= source < stop) != (start <= target < stop))
    cut_bytes = 2 * variant.micro_batch * cut / group.replicas
    params = [
        own.params_bytes / part for own, part in zip(model.layers, parts(model, group.tensor_parallel), strict=True)
    ]
    gradients = sum(params[start:stop]) / model.precision.num_bytes * uniform.costs.problem.job.optimizer.gradient_bytes
    copies = group.replicas * variant.share.num_pipelines
    sync_bytes = 4 * (copies - 1) / copies * gradients / variant.num_microbatches
    slowest_way = min(way.large_message_bytes_per_s for way in (uniform.inside, uniform.between))
    return compute_s + (cut_bytes + sync_bytes) / slowest_way


def all_groups(variant, uniform):
    """Every group that the job allows in a server, or on whole ones where all are alike."""
    problem, width = uniform.costs.problem, uniform.devices_per_server
    for degree in problem.tensor_parallel_degrees:
        for replicas in range(1, uniform.num_devices // degree + 1):
            size = replicas * degree
            spans = size % width == 0 and width % degree == 0 and uniform.most_servers_per_stage > 1
            if (size <= width or spans) and problem.job.allows_replicas(replicas, variant.micro_batch):
                yield UniformGroup(replicas=replicas, tensor_parallel=degree)


def every_division(groups, num_layers, uniform, *, later=(), stop=None):
    """(start, stop, group) of every stage of every plan that the servers have room for."""
    stop = num_layers if stop is None else stop
    for start in range(stop):
        for group in groups:
            stages = ((start, stop, group), *later)
            if uniform.placements([own for _, _, own in stages]) is not None:
                if start == 0:
                    yield stages
                yield from every_division(groups, num_layers, uniform, later=stages, stop=start)


def least_load_s(variant, uniform):
    """The optimum, found by looking at every division."""
    groups, known = list(all_groups(variant, uniform)), {}

    def known_load_s(start, stop, group, replicas):
        key = (start, stop, group, replicas)
        if key not in known:
            known[key] = load_s(variant, uniform, group, start, stop, replicas=replicas)
        return known[key]

    best_s = math.inf
    for stages in every_division(groups, uniform.costs.problem.model.num_layers, uniform):
        later = [sum(group.replicas for _, _, group in stages[index:]) for index in range(len(stages))]
        loads_s = [known_load_s(*stage, replicas) for stage, replicas in zip(stages, later, strict=True)]
        best_s = min(best_s, max(loads_s))
    return best_s


@pytest.mark.parametrize("seed", range(60))
def test_no_division_has_a_smaller_load(seed):
    search = Search(random_uniform_problem(seed), SolveOptions())
    ((variant, uniform), *_) = uniform_variants(search, "piper", schedules=(Schedule.ONE_F_ONE_B,))
    found = Piper(variant, uniform, memory_bytes=uniform.memory_bytes).divide(search)
    found_s = math.inf if found is None else largest_load_s(found)
    assert found_s == pytest.approx(least_load_s(variant, uniform), rel=2 * PIPER_LOAD)


def test_replicas_and_stages_by_hand():
    """3 layers of 4 s a sample, 1 byte a sample between them at 1 byte/s, b = 2, 4 devices.

    Two stages of 2 replicas, 2 + 1 layers: 2 x 4 s for the one sample of a replica in the first, and
    2 x 2 samples x 1 byte / 2 replicas = 2 s for the cut: 10 s, 5 s a sample. All layers on 2
    replicas: 12 s. Three stages of one device: 8 s and two cuts of 4 s in the middle: 16 s. With one
    device for either of two stages: at least 8 + 4 = 12 s.
    """
    model = chain(3, {"gpu": 4.0}, output_bytes=1.0)
    cluster = one_server("gpu", 4, fabric=Link(bandwidth_bytes_per_s=1.0))
    result = divided_by(Problem(model=model, cluster=cluster, job=job(3, micro_batch=2)))
    assert result.own_objective.value == 5.0
    assert {replicas for _, replicas, _ in shapes(result.plan)} == {2}
    assert len(result.plan.stages) == 2


def test_layers_with_the_best_saving_recompute_first():
    """4 layers of 1 + 1 s save 4 bytes; recomputing keeps inputs of 0, 1, 1, 1 bytes, and each layer needs 4 to work.

    The first of two stages keeps y = 2: 2 layers have 16 bytes of 14. The first of them could have 2 x 0 + 4 in
    place of 8, the other one 2 x 1 + 4: the first recomputes, 4 + 1 s. The last stage has 8 bytes. 1 + 3 layers
    take 6 s, for 3 + 1 there is no room, and all layers in one stage have 16 bytes, or 4 + 3 x 5. The plan
    recomputes the whole stage: 2 s, 2 + 2 s on the last device, and two backwards of 4 s: 14 s.
    """
    model = chain(4, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_device_per_server("gpu", "gpu", memory_bytes=14.0), job=job(2))
    result = divided_by(problem)
    assert result.own_objective.value == 5.0
    assert [stage.recompute for stage in result.plan.stages] == [True, False]
    assert result.objective_s == 14.0


def test_what_passes_a_stage_by_costs_it_nothing():
    """Layers of 2 s on three devices, 4 bytes from the first to the last at 2 bytes/s: these take 2 + 2 x 4 / 2."""
    model = replace(chain(3, {"gpu": 2.0}), skip_edges=(SkipEdge(source=0, target=2, num_bytes=4.0),))
    cluster = one_device_per_server("gpu", "gpu", "gpu", network=Link(bandwidth_bytes_per_s=2.0))
    problem = Problem(model=model, cluster=cluster, job=job(3))
    ((variant, uniform), *_) = uniform_variants(
        Search(problem, SolveOptions()), "piper", schedules=(Schedule.ONE_F_ONE_B,)
    )
    assert [load_s(variant, uniform, UniformGroup(), stage, stage + 1, replicas=1) for stage in range(3)] == [
        6.0,
        2.0,
        6.0,
    ]
    assert divided_by(problem).own_objective.value == 6.0


def test_a_tensor_has_an_edge_to_each_layer_that_uses_it():
    """4 bytes from the first layer to the other three, at 2 bytes/s, and layers of 2 s on two devices.

    Cut behind the second: 4 + 2 x 2 x 4 / 2 = 12 s for both stages. Behind the first: 2 + 3 x 4 = 14 s, behind the
    third 6 + 4 = 10 s, all of them on one device 8 s. At 8 bytes/s: 4 + 2 = 6 s in the middle, 2 + 3 and 6 + 3
    or 6 + 1 and 2 + 1 beside it.
    """
    edge = SkipEdge(source=0, target=3, num_bytes=4.0, earlier_targets=(1, 2))
    model = replace(chain(4, {"gpu": 2.0}), skip_edges=(edge,))

    def least(bytes_per_s):
        cluster = one_device_per_server("gpu", "gpu", network=Link(bandwidth_bytes_per_s=bytes_per_s))
        result = divided_by(Problem(model=model, cluster=cluster, job=job(3)))
        return result.own_objective.value, shapes(result.plan)

    assert least(2.0) == (8.0, [(4, 1, 1)])
    assert least(8.0) == (6.0, [(2, 1, 1), (2, 1, 1)])


def test_the_number_of_pipelines_is_chosen_by_the_time_per_sample():
    """Two layers of 1 s in fp16, the first with 8 bytes of weights: on two devices a sample takes 1 s by stages.

    Two pipelines take 1 s as well, and (2 bytes a gradient, 4 of them, N = 2) 4 x 1/2 x 8 / 2 = 8 bytes at 8 bytes/s,
    1 s more for two samples: 1.5 s. Under 1F1B, of 4 samples: 5 s by stages, and by pipelines 4 s and the summing.
    """
    layers = (layer("first", {"gpu": 1.0}, params_bytes=8.0), layer("second", {"gpu": 1.0}))
    model = replace(chain(1, {"gpu": 1.0}), layers=layers)
    optimizer = replace(job(1).optimizer, gradient_bytes=2.0)
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=1),))
    network = Link(bandwidth_bytes_per_s=8.0)
    cluster = Cluster(name="pair", device_types=kinds(gpu=100.0), servers=(server,), network=network)
    for pipelines, per_sample_s in (((1,), 1.0), ((2,), 1.5), ((1, 2), 1.0)):
        choices = job(4, pipelines=pipelines, optimizer=optimizer)
        result = divided_by(Problem(model=model, cluster=cluster, job=choices))
        assert result.own_objective.value == per_sample_s


def test_gradients_are_summed_over_all_pipelines():
    """Two pipelines of one device and 2 micro-batches: 2 s, and 4 (2 - 1) / 2 x 4 bytes / 2 at 2 bytes/s, 2 s more.

    fp16: 2 gradients of 2 bytes. Two samples at once in 4 s: 2 s each.
    """
    model = chain(1, {"gpu": 2.0}, params_bytes=4.0)
    optimizer = replace(job(1).optimizer, gradient_bytes=2.0)
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(
        name="pair", device_types=kinds(gpu=100.0), servers=(server,), network=Link(bandwidth_bytes_per_s=2.0)
    )
    result = divided_by(Problem(model=model, cluster=cluster, job=job(4, pipelines=(2,), optimizer=optimizer)))
    assert result.own_objective.value == 2.0
    assert len(result.plan.pipelines) == 2


def test_a_replica_keeps_whole_micro_batches():
    """A replica with 2 of 4 later replicas keeps y = 2 micro-batches of 2 samples of 6 bytes: 24 of 18 bytes.

    Layers of 4, 2 and 2 s a sample, b = 2. 2 + 1 + 1 devices would have loads of 4 s; all layers on 2 replicas, which
    keep one micro-batch each, take 8 s. With 24 bytes there is room.
    """
    layers = (
        layer("first", {"gpu": 4.0}, saved_bytes=6.0),
        layer("second", {"gpu": 2.0}),
        layer("third", {"gpu": 2.0}),
    )
    model = replace(chain(1, {"gpu": 1.0}), layers=layers)
    choice = job(4, micro_batch=2, recompute=Recompute.NEVER)

    def least(memory_bytes):
        problem = Problem(model=model, cluster=one_server("gpu", 4, memory_bytes=memory_bytes), job=choice)
        result = divided_by(problem)
        return result.own_objective.value, shapes(result.plan)

    assert least(18.0) == (4.0, [(3, 2, 1)])
    assert least(24.0) == (2.0, [(1, 2, 1), (1, 1, 1), (1, 1, 1)])


def test_less_memory_is_told_until_the_plan_fits():
    """Layers of 1, 1 and 3 s on two devices, of 12 bytes each; the first saves 10 bytes, the second reads 5.

    Two layers keep y = 2 micro-batches: the first recomputes in 10 bytes, the second has 1 byte to work in and saves
    nothing: 11 bytes, 1.5 + 1 s, and 3 s for the third. The plan would recompute the second layer as well, and keep
    what it reads: 2 x 5 + 10 + 1 bytes. Of 0.9 x 12 bytes, 10 have room: the first layer alone, then 4 s.
    """
    layers = (
        layer("first", {"gpu": 1.0}, saved_bytes=10.0, output_bytes=5.0),
        layer("second", {"gpu": 1.0}, working_bytes=1.0),
        layer("third", {"gpu": 3.0}),
    )
    model = replace(chain(1, {"gpu": 1.0}), layers=layers)
    problem = Problem(model=model, cluster=one_device_per_server("gpu", "gpu", memory_bytes=12.0), job=job(2))
    result = divided_by(problem)
    assert shapes(result.plan) == [(1, 1, 1), (2, 1, 1)]
    assert result.own_objective.value == 4.0
    assert faults(CostModel(problem), result.plan) == ()


def test_nothing_fits():
    problem = Problem(
        model=chain(2, {"gpu": 2.0}, saved_bytes=6.0, output_bytes=6.0),
        cluster=one_device_per_server("gpu", "gpu", memory_bytes=5.0),
        job=job(2),
    )
    assert divided_by(problem).status is Status.NO_PLAN
