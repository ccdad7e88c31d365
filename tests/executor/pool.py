"""Worlds of processes for tests: over gloo, or over NCCL on a single GPU.

Processes are forked from a server that has imported torch but not used it, which takes a few
hundredths of a second each instead of seconds.
"""

import multiprocessing
import os
import tempfile
import traceback
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

DEVICE = os.environ.get("STAGECUT_TEST_DEVICE", "cpu")
"""Where ranks run; `cuda`: all on the first GPU, over NCCL."""
TIMEOUT_S = 120
"""How long a rank waits for another: only a hanging test takes this long."""


def forks() -> ForkServerContext:
    """Start processes that have imported torch already."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.executor.preloaded"])
    return context


def device() -> Any:
    """Where tensors of a rank must be to travel."""
    import torch

    return torch.device(DEVICE)


def run(function: Callable[..., Any], *arguments: Any, world_size: int) -> list[Any]:
    """Call a function of a test module in every rank of a new world; give the answers by rank.

    Arguments and answers are pickled.
    """
    context = forks()
    with tempfile.TemporaryDirectory() as folder:
        store = Path(folder, "store")
        ends, processes = [], []
        for rank in range(world_size):
            own, other = context.Pipe(duplex=False)
            process = context.Process(
                target=_rank, args=(other, function, arguments, rank, world_size, store), daemon=True
            )
            process.start()
            other.close()
            ends.append(own)
            processes.append(process)
        try:
            return _answers(ends)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _answers(ends: list[Connection]) -> list[Any]:
    answers: dict[Connection, Any] = {}
    while len(answers) < len(ends):
        for end in multiprocessing.connection.wait([end for end in ends if end not in answers]):
            try:
                fault, answers[end] = end.recv()
            except EOFError:
                raise AssertionError(f"rank {ends.index(end)} died without an answer") from None
            if fault:
                raise AssertionError(f"rank {ends.index(end)}:\n{fault}")
    return [answers[end] for end in ends]


def _rank(
    end: Connection, function: Callable[..., Any], arguments: tuple[Any, ...], rank: int, world_size: int, store: Path
) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        _join(rank, world_size, store)
        answer = function(*arguments)
        dist.barrier()
        end.send((None, answer))
    except BaseException:
        end.send((traceback.format_exc(), None))


def _join(rank: int, world_size: int, store: Path) -> None:
    """Start torch.distributed: as little as possible over gloo, as `plan run` does on several hosts over NCCL."""
    import torch.distributed as dist

    os.environ |= {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    if DEVICE == "cpu":
        dist.init_process_group(
            "gloo",
            store=dist.FileStore(str(store), world_size),
            rank=rank,
            world_size=world_size,
            timeout=timedelta(seconds=TIMEOUT_S),
        )
        return
    from stagecut.executor.ranks.environment import RUN_FOLDER
    from stagecut.executor.ranks.world import join_world

    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world_size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= {RUN_FOLDER: str(store.parent), "NCCL_HOSTID": f"host{rank}"}  # NCCL refuses two ranks of a host
    join_world(backend="nccl", device="cuda", timeout_s=TIMEOUT_S)
