"""A checkpoint written under one plan resumes under another as if nothing had happened."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import torch

from stagecut.executor import checkpoint
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.plan import Plan
from stagecut.planner.io.files.plan_file import PlanFile
from tests.executor import pool
from tests.executor.training.training_loop import NUM_STEPS, Arrays, plan_file, train, trained_alone

SAVED_AFTER = 3
TOLERANCE = 1e-12
ALONE = plan_of((0, 6), num_microbatches=4)
REPLICATED = plan_of((0, 2, 6), num_microbatches=4, replicas=(2, 2))
THREE_STAGES = plan_of((0, 1, 4, 6), num_microbatches=2, micro_batch=4)
SHARED = plan_of((0, 3, 6), num_microbatches=4, tensor_parallel=(1, 2))
TWO_PIPELINES = plan_of((0, 6), num_microbatches=2, num_pipelines=2)
Plans = list[Plan | PlanFile]
Answers = list[tuple[Arrays, Arrays, list[float]]]


def saved(plan: Plan | PlanFile, folder: Path) -> Arrays:
    """Train the first steps on one rank and save; return its state."""
    return train(plan, folder, steps=SAVED_AFTER, saves=True)[1]


def resumed(plans: Plans, folder: Path) -> Answers:
    """Resume every plan on one rank; return its state after restoring and after the last step, and the losses."""
    return [train(plan, folder, steps=NUM_STEPS - SAVED_AFTER, restores=True) for plan in plans]


@pytest.fixture(autouse=True)
def double_precision() -> Iterator[None]:
    """Worlds of one process are this one."""
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(scope="module")
def expected() -> tuple[Arrays, list[float]]:
    """The whole training in plain torch, without interruption."""
    return trained_alone(NUM_STEPS)


def check_resumed(answers: Answers, written: Arrays, expected: tuple[Arrays, list[float]]) -> None:
    """Check that the state came back bit for bit on every rank, and that training went on as without interruption."""
    tensors, losses = expected
    restored = {name for before, _, _ in answers for name in before}
    assert restored == set(written)
    for before, after, own_losses in answers:
        for name, tensor in before.items():
            np.testing.assert_array_equal(tensor, written[name], name)
        for name, tensor in after.items():
            np.testing.assert_allclose(tensor, tensors[name], rtol=TOLERANCE, atol=TOLERANCE, err_msg=name)
        assert own_losses == pytest.approx(losses[SAVED_AFTER:], rel=TOLERANCE)


def together(parts: list[Arrays]) -> Arrays:
    """Merge the states of the ranks; replicas count once."""
    return {name: tensor for part in parts for name, tensor in part.items()}


def test_replicas_resume_as_other_stages_devices_and_pipelines(tmp_path, expected):
    """Two stages of two replicas with ZeRO-1, to three stages, tensor parallelism, two pipelines, one process."""
    written = together(pool.run(saved, plan_file(REPLICATED, zero1=True), tmp_path, world_size=4))
    for answers in zip(*pool.run(resumed, [THREE_STAGES, SHARED], tmp_path, world_size=3), strict=True):
        check_resumed(list(answers), written, expected)
    for answers in zip(*pool.run(resumed, [TWO_PIPELINES], tmp_path, world_size=2), strict=True):
        check_resumed(list(answers), written, expected)
    check_resumed(resumed([ALONE], tmp_path), written, expected)


def test_shared_weights_resume_in_replicas_that_divide_the_optimizer_state(tmp_path, expected):
    """A run with tensor parallelism resumes with replicas, with ZeRO-1 and without."""
    written = together(pool.run(saved, SHARED, tmp_path, world_size=3))
    plans = [plan_file(REPLICATED, zero1=zero1) for zero1 in (True, False)]
    for answers in zip(*pool.run(resumed, plans, tmp_path, world_size=4), strict=True):
        check_resumed(list(answers), written, expected)


def killed_before_the_renaming(folder: Path) -> None:
    """Kill one rank before it renames the checkpoint."""
    publish = "stagecut.executor.checkpoint.collective.publish"
    with mock.patch(publish, lambda *_: os.kill(os.getpid(), signal.SIGKILL)):
        train(ALONE, folder, steps=1, restores=True, saves=True)


def test_process_killed_before_the_renaming_leaves_the_checkpoint_before(tmp_path):
    """All files of the second checkpoint are written; the next save removes them."""
    saved(ALONE, tmp_path)
    with pytest.raises(AssertionError, match="rank 0 died"):
        pool.run(killed_before_the_renaming, tmp_path, world_size=1)
    assert names_in(tmp_path) == [".step-000004.partial", "step-000003"]
    assert checkpoint.latest(tmp_path) == tmp_path / "step-000003"
    train(ALONE, tmp_path, steps=1, restores=True, saves=True)
    assert names_in(tmp_path) == ["step-000003", "step-000004"]


def names_in(folder: Path) -> list[str]:
    """Names of what is in a folder, hidden ones too."""
    return sorted(path.name for path in folder.iterdir())
