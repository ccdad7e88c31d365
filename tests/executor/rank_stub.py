"""A rank that fails in the way its argument says; rank 0 waits for 1, 1 for 2, as a pipeline's backward does."""

import os
import signal
import sys
import time
from pathlib import Path

import numpy

from stagecut.executor.ranks.environment import attempt_number
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rank_process import become_rank, end_rank


def fail(how):
    if how == "dead":
        os.kill(os.getpid(), signal.SIGKILL)
    elif how == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif how == "hung":
        while True:
            time.sleep(1)
    elif how == "raising":
        raise ValueError("no such layer")
    elif how == "once" and attempt_number() == 0:
        os.kill(os.getpid(), signal.SIGKILL)


def play(how, world, folder):
    import torch
    import torch.distributed as dist

    tensor, last = torch.full((4,), float(world.rank)), world.world_size - 1
    dist.all_reduce(tensor)
    folder.joinpath(f"pid{world.rank}").write_text(str(os.getpid()))
    if world.rank == last:
        fail(how)
    else:
        with world.wait_graph.waiting_for((world.rank + 1,)):
            dist.recv(tensor, world.rank + 1)
    if world.rank > 0:
        dist.send(tensor, world.rank - 1)
    if how == "leaving" and world.rank == last:
        dist.barrier()
        os.kill(os.getpid(), signal.SIGSTOP)
    world.leave()
    folder.joinpath(f"random{world.rank}").write_text(str(numpy.random.random()))
    folder.joinpath(f"done{world.rank}").write_text(f"{attempt_number()} {tensor.sum().item():g}")


def main(how, timeout_s, folder):
    become_rank()
    from stagecut.executor.ranks.world import join_world

    rank, world = int(os.environ["RANK"]), None
    try:
        world = join_world(device="cpu", timeout_s=float(timeout_s))
        play(how, world, Path(folder))
    except Exception as fault:
        end_rank(failure_report(fault, rank=rank), world)


if __name__ == "__main__":
    main(*sys.argv[1:])
