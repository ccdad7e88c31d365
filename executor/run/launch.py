"""Starts one process per device on this machine, and says in one message what went wrong."""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from stagecut.executor.run.faults import ATTEMPT, FOLDER, ErrorReport, read_reports
from stagecut.executor.run.local_ranks import run_ranks
from stagecut.executor.run.loopback import ONLY_LOOPBACK
from stagecut.executor.run.rank_process import LAUNCHER
from stagecut.executor.run.run_folder import run_folder
from stagecut.executor.run.verdict import verdict

_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)


def launch(
    arguments: Sequence[str],
    *,
    num_ranks: int,
    names: Sequence[str] = (),
    max_restarts: int = 0,
    timeout_s: float = 0.0,
    verbose: bool = False,
) -> None:
    """Run this Python with these arguments once for each rank.

    Every rank finds the environment that torchrun gives, but for an address where to meet: the ranks find each
    other in a file of a folder that only this user can read, and connect over the loopback interface. See
    :func:`executor.run.world.join_world`. A rank has to call :func:`executor.run.rank_process.become_rank` first.
    When one fails, the others are ended; when this process ends, however it does, so do they.

    Parameters
    ----------
    names
        What to call each rank in messages.
    max_restarts
        How many times to start all ranks again after one failed.
    timeout_s
        How long ranks wait for each other, for messages.
    verbose
        Whether to print the traceback of every rank that left one.

    Raises
    ------
    StagecutError
        If ranks fail: a :class:`BadInputError` where the input is at fault.
    KeyboardInterrupt
        On SIGINT and the like.
    """
    with _interruptible(), run_folder() as folder:
        exit_codes: dict[int, int] = {}
        for attempt in range(max_restarts + 1):
            environments = _environments(folder, num_ranks, attempt)
            exit_codes = run_ranks([sys.executable, *arguments], environments)
            if not exit_codes:
                return
        reports = read_reports(folder, attempt=max_restarts)
        if verbose:
            _print_traces(reports)
        raise verdict(reports, exit_codes, names=names, timeout_s=timeout_s)


def _print_traces(reports: Sequence[ErrorReport]) -> None:
    for report in reports:
        sys.stderr.write(f"rank {report.rank}: {report.trace}")


def _environments(folder: Path, num_ranks: int, attempt: int) -> list[dict[str, str]]:
    """Of every rank; threads and the logging of torch stay as the user has set them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {"OMP_NUM_THREADS": str(max(1, cores // num_ranks)), "TORCH_CPP_LOG_LEVEL": "ERROR"}
    common: Mapping[str, str] = {
        **defaults,
        **os.environ,
        **ONLY_LOOPBACK,
        FOLDER: str(folder),
        LAUNCHER: str(os.getpid()),
        ATTEMPT: str(attempt),
        "GROUP_RANK": "0",
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
    }
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(num_ranks)]


@contextmanager
def _interruptible() -> Iterator[None]:
    """The first signal to end raises KeyboardInterrupt; while the ranks are then ended, others are of no use."""
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
