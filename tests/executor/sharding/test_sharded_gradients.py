"""Losses and gradients of sharded plans are those of a single process."""

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from functools import partial
from math import prod
from operator import mul

import pytest
import torch

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.reference import reference_step
from stagecut.executor.play.tensor_parallel import whole
from stagecut.planner.core.plan import Plan
from tests.executor import pool
from tests.executor.sharding.sharded_models import MODELS, plan_file, random_sharding, sharded
from tests.executor.tied_chain import num_ranks

TOLERANCE = 1e-9
Case = tuple[str, Plan]


def worst_differences(cases: list[Case]) -> list[tuple[float, float, float]]:
    """Differences of the loss, the evaluated loss, and the largest of a gradient."""
    torch.set_default_dtype(torch.float64)
    answers = []
    for name, plan in cases:
        model = MODELS[name]
        chain = model.modules()
        batch = chain.batch(len(plan.pipelines) * plan.num_samples, torch.Generator().manual_seed(3))
        expected = reference_step(chain, batch, chain.loss, seed=5)
        pipeline = executor.load(
            plan_file(plan, model.profile), chain, optimizer=partial(torch.optim.SGD, lr=0.0), seed=5
        )
        evaluated = pipeline.evaluate(batch)
        loss = pipeline.step(batch)
        worst = max(
            float((whole(parameter.grad) - expected.gradients[key]).abs().max())
            for key, parameter in pipeline.named_parameters().items()
        )
        answers.append((abs(loss - expected.loss), abs(evaluated - expected.loss), worst))
    return answers


def check(cases: list[Case], *, world_size: int) -> None:
    """Run cases of one number of ranks in one world."""
    for answers in pool.run(worst_differences, cases, world_size=world_size):
        for case, differences in zip(cases, answers, strict=True):
            assert max(differences) < TOLERANCE, (case, differences)


def one_stage(name: str, sizes: tuple[int, ...], seed: int) -> Case:
    """A single stage with random strategies."""
    layers = MODELS[name].profile.layers
    plan = plan_of((0, len(layers)), micro_batch=8, num_microbatches=2, tensor_parallel=(prod(sizes),))
    sharding = random_sharding(random.Random(seed), layers, sizes, samples=8)
    return name, sharded(plan, {0: sharding})


SMALL = ("gpt", "llama", "bert", "mixtral")
LARGE = ("vit", "vgg")


@pytest.mark.parametrize(("sizes", "num_cases"), [((2,), 2), ((2, 2), 2)])
def test_random_strategies_have_the_gradients_of_a_single_process(sizes: tuple[int, ...], num_cases: int) -> None:
    """Any strategy of any operator on meshes of one and of two axes."""
    cases = [one_stage(name, sizes, seed) for name in SMALL for seed in range(num_cases)]
    large = [one_stage(name, sizes, 0) for name in LARGE if len(sizes) == 1]
    check([*cases, *large], world_size=prod(sizes))


def random_plan(draw: random.Random, name: str, *, max_ranks: int) -> Plan:
    """Stages, replicas, pipelines and recomputation, with any strategies inside the stages."""
    layers = MODELS[name].profile.layers
    while True:
        num_stages, num_pipelines = draw.choice((1, 2, 2, 3)), draw.choice((1, 1, 2))
        cuts = (0, *sorted(draw.sample(range(1, len(layers)), num_stages - 1)), len(layers))
        meshes = [draw.choice(((1,), (2,), (2,), (2, 2), (4,))) for _ in range(num_stages)]
        replicas = [draw.choice((1, 1, 2)) for _ in range(num_stages)]
        degrees = [prod(mesh) for mesh in meshes]
        if 2 <= num_pipelines * sum(map(mul, replicas, degrees)) <= max_ranks and max(degrees) > 1:
            break
    plan = plan_of(
        cuts,
        micro_batch=8,
        num_microbatches=draw.choice((1, 3)),
        replicas=replicas,
        tensor_parallel=degrees,
        recompute=[draw.random() < 0.3 for _ in range(num_stages)],
        num_pipelines=num_pipelines,
    )
    shardings = {
        index: random_sharding(draw, layers[cuts[index] : cuts[index + 1]], mesh, samples=8 // replicas[index])
        for index, mesh in enumerate(meshes)
        if prod(mesh) > 1
    }
    return sharded(plan, shardings)


def check_random_plans(name: str, seeds: Iterable[int], *, max_ranks: int) -> None:
    """Run random plans, those of equal size in one world."""
    by_size = defaultdict(list)
    for seed in seeds:
        plan = random_plan(random.Random(seed), name, max_ranks=max_ranks)
        by_size[num_ranks(plan)].append((name, plan))
    for world_size, cases in sorted(by_size.items()):
        check(cases, world_size=world_size)


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_random_sharded_plans_have_the_gradients_of_a_single_process(name: str) -> None:
    """Pipeline stages x replicas x pipelines x sharding x recomputation; GPT's head is tied to its embedding."""
    check_random_plans(name, range(3), max_ranks=5)


@pytest.mark.slow
@pytest.mark.skipif("STAGECUT_LONG_TESTS" not in os.environ, reason="takes minutes: set STAGECUT_LONG_TESTS")
@pytest.mark.parametrize("name", SMALL)
def test_a_hundred_random_sharded_plans_have_the_gradients_of_a_single_process(name: str) -> None:
    """The same, longer."""
    check_random_plans(name, range(100, 125), max_ranks=8)
