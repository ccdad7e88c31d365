"""The processes of a run on this machine: started together, ended together."""

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from stagecut.executor.run.faults import RunError

SHUTDOWN_S = 3.0
"""What a rank has to end when told to, before it is killed."""
_POLL_S = 0.1


def run_ranks(command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> dict[int, int]:
    """Start a command once in each environment, and wait until all have ended; when one fails, the others are ended.

    Returns
    -------
    dict
        Exit codes of those that failed, negative for signals.

    Raises
    ------
    RunError
        If the system starts no further process.
    """
    processes: list[subprocess.Popen[bytes]] = []
    killed: set[int] = set()
    try:
        for environment in environments:
            processes.append(_start(command, environment))
        _wait_for_all_or_a_failure(processes)
    finally:
        killed = _end(processes)
    codes = {rank: -signal.SIGTERM if rank in killed else process.wait() for rank, process in enumerate(processes)}
    return {rank: code for rank, code in codes.items() if code != 0}


def _start(command: Sequence[str], environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own, for what it starts to end with it."""
    try:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    except OSError as fault:
        raise RunError(f"rank {environment['RANK']} cannot be started: {fault.strerror}") from None


def _wait_for_all_or_a_failure(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    while True:
        codes = [process.poll() for process in processes]
        if all(code == 0 for code in codes) or any(codes):
            return
        time.sleep(_POLL_S)


def _end(processes: Sequence[subprocess.Popen[bytes]]) -> set[int]:
    """End those that are left, with what they have started; the ones that had to be killed."""
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
    """To all processes of its session, of which it is the first."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
