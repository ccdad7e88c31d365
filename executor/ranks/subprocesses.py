"""The processes of a run on this machine: started together, ended together."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from stagecut.executor.ranks.failures import RunError

SHUTDOWN_S = 3.0
"""How long a rank has to end after SIGTERM before it is killed."""
_POLL_S = 0.1


def run_ranks(command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> dict[int, int]:
    """Start a command once in each environment and wait for all; when one fails, terminate the others.

    Returns
    -------
    dict
        Exit codes of the ranks that failed; negative for signals.

    Raises
    ------
    RunError
        If the system refuses to start another process.
    """
    processes: list[subprocess.Popen[bytes]] = []
    killed: set[int] = set()
    try:
        for environment in environments:
            processes.append(_start(command, environment))
        while not _all_done_or_one_failed(processes):
            time.sleep(_POLL_S)
    finally:
        killed = _end(processes)
    codes = {rank: -signal.SIGTERM if rank in killed else process.wait() for rank, process in enumerate(processes)}
    return {rank: code for rank, code in codes.items() if code != 0}


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """Start a rank in a session of its own, so that its children end with it."""
    try:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as fault:
        raise RunError(f"rank {environment['RANK']} cannot be started: {fault.strerror}") from None


def _all_done_or_one_failed(processes: Sequence[subprocess.Popen[bytes]]) -> bool:
    codes = [process.poll() for process in processes]
    return all(code == 0 for code in codes) or any(codes)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """Terminate the ranks that still run, with their children; return those that had to be killed."""
    running = {rank: process for rank, process in enumerate(processes) if process.poll() is None}
    for process in running.values():
        _signal(process, signal.SIGTERM)
    killed, deadline_s = set[int](), time.monotonic() + SHUTDOWN_S
    for rank, process in running.items():
        try:
            process.wait(max(0.0, deadline_s - time.monotonic()))
        except subprocess.TimeoutExpired:
            killed.add(rank)
    for rank in killed:
        _signal(running[rank], signal.SIGKILL)
        running[rank].wait()
    return killed


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal every process of its session, which it leads."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
