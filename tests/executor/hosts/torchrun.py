"""Torchrun on two hosts, forked from a process that has imported torch, and its ranks from it: that takes seconds."""

import ctypes
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tests.executor import pool
from tests.executor.hosts.namespaces import CABLE, Host

ROOT = Path(__file__).parents[3]
PLAN = Path(__file__).with_name("plan_script.py")
CLONE_NEWNET = 0x40000000


class Done(NamedTuple):
    code: int | None
    """None if torchrun had to be killed."""
    stdout: str
    stderr: str


def on_hosts(
    hosts: Sequence[Host],
    num_ranks: Sequence[int],
    script: Path,
    *arguments: str,
    folder: Path,
    timeout_s: float,
) -> list[Done]:
    """Run a script on so many ranks of each host, the first of which is the master; what each host answered.

    Parameters
    ----------
    folder
        For the output.
    """
    how = f"--nnodes {len(hosts)} --master-addr {hosts[0].address} --master-port 29500 --start-method fork --run-path"
    context, started = pool.forks(), []
    try:
        for number, (host, count) in enumerate(zip(hosts, num_ranks, strict=True)):
            where = f"--node-rank {number} --nproc-per-node {count}"
            words = [*where.split(), *how.split(), str(script), *arguments]
            started.append(context.Process(target=_torchrun, args=(host, words, folder / host.name)))
            started[-1].start()
        for process in started:
            process.join(timeout_s)
        codes = [process.exitcode for process in started]
    finally:
        for process in started:
            process.kill()
            process.join()
    texts = [[(folder / host.name).with_suffix(end).read_text() for end in (".out", ".err")] for host in hosts]
    return [Done(code, *text) for code, text in zip(codes, texts, strict=True)]


def _torchrun(host: Host, arguments: Sequence[str], path: Path) -> None:
    from torch.distributed.run import main

    for number, end in ((1, ".out"), (2, ".err")):
        os.dup2(os.open(path.with_suffix(end), os.O_WRONLY | os.O_CREAT), number)
    _enter(host)
    os.chdir(ROOT)
    os.environ |= {"GLOO_SOCKET_IFNAME": CABLE, "OMP_NUM_THREADS": "1"}
    sys.argv[0] = "torchrun"
    main(arguments)


def _enter(host: Host) -> None:
    """Give this process the network of a host."""
    with Path("/run/netns", host.name).open() as namespace:
        if ctypes.CDLL(None, use_errno=True).setns(namespace.fileno(), CLONE_NEWNET) != 0:
            raise OSError(ctypes.get_errno(), f"setns to {host.name}")
