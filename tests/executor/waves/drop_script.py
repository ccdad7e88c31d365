"""Training that goes on without a worker, as ranks of our launcher: the second stage of worker 1 kills its process."""

import os
import signal
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import become_rank, end_rank
from tests.executor.waves.wave_plans import MSE, layers, plan_of, samples, worker_of

SGD = partial(torch.optim.SGD, lr=0.1)
NUM_WAVES, FULL_WAVES = 6, 2
"""Of all; and those that worker 1 takes part in."""
CREWS = ((0,), (1, 2))
VICTIM = 2


class Fatal(nn.Module):
    """Ends the process of worker 1's last stage, once its gate has been passed."""

    num_forwards = 0

    def forward(self, state):
        self.num_forwards += 1
        if environment.rank() == VICTIM and self.num_forwards == FULL_WAVES + 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return state


def plan():
    """Workers of one stage and of two, two servers, a minibatch a wave, D = 0: a gate before every minibatch."""
    return plan_of(worker_of("a", (0, 4)), worker_of("b", (0, 1, 4)))


def data(worker, minibatch):
    """Samples of their own for every minibatch of either worker."""
    return samples(2, seed=100 * worker + minibatch)


def main(folder):
    become_rank()
    from stagecut.executor.ranks.world import exit_code_in, join_world
    from stagecut.executor.waves.loading import load_waves

    world, (*first, last) = None, layers()
    try:
        world = join_world(device="cpu", timeout_s=60.0)
        chain = [*first, nn.Sequential(*last, Fatal())]
        rank = load_waves(plan(), chain, MSE, SGD, drop_workers=True, world=world)
        report = rank.train(data, num_waves=NUM_WAVES)
        codes = [exit_code_in(answer) for answer in world.meet(b"")]
        told = {"codes": codes, "dropped": list(report.dropped), "weights": dict(rank.engine.trained_weights())}
        torch.save(told, Path(folder, str(world.rank)))
    except Exception as fault:
        end_rank(failure_report(fault, rank=environment.rank()), world)


if __name__ == "__main__":
    main(*sys.argv[1:])
