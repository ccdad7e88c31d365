"""Torchrun on two hosts, whose ranks are forked from it: importing torch would take each of them seconds."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.executor.hosts.namespaces import CABLE, Host

ROOT = Path(__file__).parents[3]
PLAN = Path(__file__).with_name("plan_script.py")
TORCHRUN = """
import gc
gc.disable()
import torch._dynamo
gc.enable()
gc.freeze()
from torch.distributed.run import main
main()
"""
"""The first optimizer imports `torch._dynamo`."""


def start(hosts: Sequence[Host], number: int, num_ranks: int, script: Path, *arguments: str) -> subprocess.Popen[str]:
    """Start the ranks of one host; the first host is the master."""
    where = f"--nnodes {len(hosts)} --node-rank {number} --nproc-per-node {num_ranks}"
    how = f"--master-addr {hosts[0].address} --master-port 29500 --start-method fork --run-path"
    torchrun = [sys.executable, "-c", TORCHRUN, *where.split(), *how.split()]
    return subprocess.Popen(
        hosts[number].command(*torchrun, str(script), *arguments),
        cwd=ROOT,
        env={**os.environ, "GLOO_SOCKET_IFNAME": CABLE, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
