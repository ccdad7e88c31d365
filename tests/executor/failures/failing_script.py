"""A training script of a user, which goes wrong in the way its argument says."""

import os
import sys

import torch
from torch import nn

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.ranks.world import join_world


def main(how):
    """`load` finds most faults on all ranks alike."""
    world = None if how == "alone" else join_world(device="cpu", timeout_s=60)
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)][: 1 if how == "layers" else 2]
    pipeline = executor.load(plan_of((0, 1, 2), num_microbatches=2), layers, nn.functional.mse_loss, world=world)
    rank = int(os.environ["RANK"])
    if how == "bug":
        raise ValueError("a bug of the script")
    if how == "one" and rank == 1:
        pipeline.step({"input_ids": 1, "labels": 2})
    pipeline.step((torch.ones(4, 2), torch.ones(4, 2)))
    world.leave()
    # In one piece: where output is unbuffered, `print` writes the end of the line apart from it.
    sys.stdout.write(f"rank {rank} of {sys.argv[0]} is done\n")


if __name__ == "__main__":
    main(sys.argv[1])
