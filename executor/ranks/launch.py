"""Starts one process per device on this machine, and reports a failure in one message."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from stagecut.executor.ranks.dispensable import Crews, goes_on
from stagecut.executor.ranks.environment import ATTEMPT, LAUNCHER, LOOPBACK_ONLY, RUN_FOLDER
from stagecut.executor.ranks.reporting import read_reports
from stagecut.executor.ranks.root_cause import root_cause
from stagecut.executor.ranks.run_folder import run_folder
from stagecut.executor.ranks.subprocesses import run_ranks

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def launch(
    arguments: Sequence[str],
    *,
    num_ranks: int,
    names: Sequence[str] = (),
    max_restarts: int = 0,
    timeout_s: float = 0.0,
    verbose: bool = False,
    crews: Crews = (),
) -> None:
    """Run a module once for each rank, as `python -m` would.

    Every rank gets the environment that torchrun would give it, except for a master address: the ranks find each
    other through a file in a folder that only this user can read, and connect over the loopback interface. See
    :func:`stagecut.executor.ranks.world.join_world`. A rank must call
    :func:`stagecut.executor.ranks.rank_process.become_rank` first. When one rank fails, the others are
    terminated; when this process ends, for whatever reason, so do they.

    Parameters
    ----------
    arguments
        `-m`, a module and its arguments.
    names
        What to call each rank in messages.
    max_restarts
        How many times to restart all ranks after a failure.
    timeout_s
        How long ranks wait for each other; used in messages.
    verbose
        Whether to print the traceback of every rank that left one.
    crews
        Sets of ranks that the others can do without, while one is left: when a rank of one fails, the run goes on.

    Raises
    ------
    StagecutError
        If ranks fail: a :class:`stagecut.planner.core.messages.errors.BadInputError` if the input is at fault.
    KeyboardInterrupt
        On SIGINT and similar signals.
    """
    with _interruptible(), run_folder() as folder:
        exit_codes: dict[int, int] = {}
        for attempt in range(max_restarts + 1):
            environment = _environment(folder, num_ranks, attempt)
            exit_codes = run_ranks(arguments[1:], environment, num_ranks=num_ranks, crews=crews)
            if goes_on(exit_codes, crews):
                return
        reports = read_reports(folder, attempt=max_restarts)
        for report in reports if verbose else ():
            sys.stderr.write(f"rank {report.rank}: {report.trace}")
        raise root_cause(reports, exit_codes, names=names, timeout_s=timeout_s)


def _environment(folder: Path, num_ranks: int, attempt: int) -> dict[str, str]:
    """What the ranks share of theirs; the number of threads and torch's log level stay as the user has set them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return {
        "OMP_NUM_THREADS": str(max(1, cores // num_ranks)),
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **os.environ,
        **LOOPBACK_ONLY,
        RUN_FOLDER: str(folder),
        LAUNCHER: str(os.getpid()),
        ATTEMPT: str(attempt),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
    }


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let the first signal raise KeyboardInterrupt; later ones are ignored while the ranks are being terminated."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # as under nohup
            signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
