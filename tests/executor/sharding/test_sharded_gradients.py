"""Losses and gradients of sharded plans are those of a single process."""

import random
from functools import partial

import pytest
import torch

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.reference import reference_step
from stagecut.executor.play.tensor_parallel import whole
from stagecut.planner.core.plan import Plan
from tests.executor import pool
from tests.executor.sharding.sharded_models import MODELS, plan_file, random_sharding, sharded

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
    num_ranks = int(torch.tensor(sizes).prod())
    plan = plan_of((0, len(layers)), micro_batch=8, num_microbatches=2, tensor_parallel=(num_ranks,))
    sharding = random_sharding(random.Random(seed), layers, sizes, samples=8)
    return name, sharded(plan, {0: sharding})


@pytest.mark.parametrize("name", MODELS)
def test_random_strategies_have_the_gradients_of_a_single_process(name: str) -> None:
    """Any strategy of any operator on meshes of one and of two axes."""
    few = name in ("vgg", "vit")
    check([one_stage(name, (2,), seed) for seed in range(2 if few else 6)], world_size=2)
    check([one_stage(name, (2, 2), seed) for seed in range(1 if few else 4)], world_size=4)
