"""A checkpoint written under one sharding resumes under another, and under none."""

import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from stagecut import executor
from stagecut.executor import checkpoint
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.optimizers import local_states
from stagecut.executor.play.tensor_parallel import whole
from stagecut.planner.core.plan import Plan
from tests.executor import pool
from tests.executor.sharding.sharded_models import MODELS, plan_file, random_sharding, sharded

NAME = "gpt"
SAVED_AFTER, NUM_STEPS = 2, 4
ADAMW = partial(torch.optim.AdamW, lr=0.01, weight_decay=0.1)
TOLERANCE = 1e-9
Arrays = dict[str, NDArray[np.float64]]


def trained(
    plan: Plan, folder: Path, *, steps: int, restores: bool = False, saves: bool = False
) -> tuple[Arrays, Arrays, list[float]]:
    """Parameters and optimizer states before and after some steps, tensors whole, and the losses."""
    torch.set_default_dtype(torch.float64)
    model = MODELS[NAME]
    chain = model.modules()
    pipeline = executor.load(plan_file(plan, model.profile), chain, optimizer=ADAMW, clip_norm=0.3, seed=5)
    if restores:
        checkpoint.restore(pipeline, folder)
    before, losses = contents(pipeline), []
    for _ in range(steps):
        generator = torch.Generator().manual_seed(pipeline.num_steps)
        losses.append(pipeline.step(chain.batch(pipeline.global_batch, generator)))
    if saves:
        checkpoint.save(pipeline, folder)
    return before, contents(pipeline), losses


def contents(pipeline: executor.Pipeline) -> Arrays:
    """What a checkpoint holds of this rank."""
    states = local_states(pipeline.optimizer)
    found = {}
    for name, parameter in pipeline.named_parameters().items():
        found[name] = whole(parameter.detach()).cpu().numpy().copy()
        for key, value in states.get(parameter, {}).items():
            found[f"{name}.{key}"] = whole(value).cpu().numpy().copy()
    return found


def plan_on(sizes: tuple[int, ...], seed: int) -> Plan:
    """One stage with random strategies, or with none on a single device."""
    layers = MODELS[NAME].profile.layers
    plan = plan_of((0, len(layers)), micro_batch=4, num_microbatches=2, tensor_parallel=(int(np.prod(sizes)),))
    if not sizes:
        return plan
    return sharded(plan, {0: random_sharding(random.Random(seed), layers, sizes, samples=4)})


@pytest.fixture(autouse=True)
def double_precision():
    """Worlds of one process are this one."""
    yield
    torch.set_default_dtype(torch.float32)


def test_a_checkpoint_resumes_under_another_sharding_and_under_none(tmp_path: Path) -> None:
    """Written on a mesh of 2 x 2, and on one process; parameters and optimizer states come back bit for bit."""
    _, expected, losses = trained(plan_on((), 0), tmp_path / "none", steps=NUM_STEPS)
    written, ends = {}, []
    for _, after, _ in pool.run(
        partial(trained, steps=SAVED_AFTER, saves=True), plan_on((2, 2), 1), tmp_path, world_size=4
    ):
        written |= after
    ends += pool.run(
        partial(trained, steps=NUM_STEPS - SAVED_AFTER, restores=True), plan_on((2,), 2), tmp_path, world_size=2
    )
    ends.append(trained(plan_on((), 0), tmp_path, steps=NUM_STEPS - SAVED_AFTER, restores=True))
    for before, after, own_losses in ends:
        for name, tensor in before.items():
            np.testing.assert_array_equal(tensor, written[name], name)
        for name, tensor in after.items():
            np.testing.assert_allclose(tensor, expected[name], rtol=0, atol=TOLERANCE, err_msg=name)
        assert own_losses == pytest.approx(losses[SAVED_AFTER:], abs=TOLERANCE)


def test_a_checkpoint_without_sharding_resumes_under_one(tmp_path: Path) -> None:
    """From one process to a mesh of two."""
    _, expected, losses = trained(plan_on((), 0), tmp_path / "none", steps=NUM_STEPS)
    trained(plan_on((), 0), tmp_path, steps=SAVED_AFTER, saves=True)
    rest = partial(trained, steps=NUM_STEPS - SAVED_AFTER, restores=True)
    for _, after, own_losses in pool.run(rest, plan_on((2,), 4), tmp_path, world_size=2):
        for name, tensor in after.items():
            np.testing.assert_allclose(tensor, expected[name], rtol=0, atol=TOLERANCE, err_msg=name)
        assert own_losses == pytest.approx(losses[SAVED_AFTER:], abs=TOLERANCE)
