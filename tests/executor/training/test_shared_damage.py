"""All ranks report alike what one rank finds wrong with a checkpoint."""

import resource
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from stagecut.executor import checkpoint, load
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.messages.errors import BadInputError, OutputError
from tests.executor import pool
from tests.executor.tied_chain import chain
from tests.executor.training.training_loop import ADAMW, batch_of

PLAN = plan_of((0, 3, 6), num_microbatches=4)


def saved_and_damaged(folder: Path) -> list[str]:
    """Return one rank's messages when rank 1 may not write large files, and when a file of rank 1 is damaged."""
    torch.set_default_dtype(torch.float64)
    pipeline, told = load(PLAN, chain(), optimizer=ADAMW), []
    pipeline.step(batch_of(0))
    place = checkpoint.save(pipeline, folder)
    pipeline.step(batch_of(1))
    if dist.get_rank() == 1:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    with pytest.raises(OutputError) as caught:
        checkpoint.save(pipeline, folder)
    told.append(str(caught.value))
    dist.barrier()
    told.append(" ".join(sorted(path.name for path in folder.iterdir())))
    dist.barrier()
    if dist.get_rank() == 0:
        path = place / "__1_0.distcp"
        content = path.read_bytes()
        path.write_bytes(content[:-64] + bytes(byte ^ 255 for byte in content[-64:]))
    dist.barrier()
    with pytest.raises(BadInputError) as refused:
        checkpoint.restore(pipeline, folder)
    return [*told, str(refused.value)]


def test_all_ranks_are_told_the_same(tmp_path):
    first, second = pool.run(saved_and_damaged, tmp_path, world_size=2)
    assert first == second
    cannot, names, refused = first
    assert "step-000002: cannot be written by rank 1: File too large: " in cannot
    assert cannot.endswith("__1_0.distcp; earlier checkpoints are intact")
    assert names == "step-000001"
    assert "__1_0.distcp is damaged: its content is not what was written" in refused
