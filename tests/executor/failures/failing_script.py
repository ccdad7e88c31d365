"""A training script of a user, which goes wrong in the way its argument says."""

import os
import sys

import torch
from torch import nn

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.ranks.world import join_world


class NoOptimizer:
    """Those of torch import `torch._dynamo`."""

    def __init__(self, groups):
        self.param_groups = groups

    def zero_grad(self):
        pass


def main(how):
    """`load` finds most faults on all ranks alike."""
    world = None if how == "alone" else join_world(device="cpu", timeout_s=60)
    rank = int(os.environ["RANK"])
    # In one piece: where output is unbuffered, `print` writes the end of the line apart from it.
    sys.stdout.write(f"rank {rank} of {sys.argv[0]} does {how}\n")
    sys.stdout.flush()
    layers = [nn.Linear(2, 2), nn.Linear(2, 2)][: 1 if how == "layers" else 2]
    plan = plan_of((0, 1, 2), num_microbatches=2)
    pipeline = executor.load(plan, layers, nn.functional.mse_loss, NoOptimizer, world=world)
    if how == "bug":
        raise ValueError("a bug of the script")
    inputs, targets = torch.ones(4, 2), torch.ones(4, 2)
    pipeline.step({"input_ids": 1, "labels": 2} if rank == 1 else (inputs, targets))


if __name__ == "__main__":
    main(sys.argv[1])
