"""Starts one process per device on this machine, and says in one message what went wrong."""

import logging
import os
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from executor.run.faults import FOLDER, ErrorReport, read_reports
from executor.run.rank_process import LAUNCHER
from executor.run.verdict import verdict
from planner.core.errors import StagecutError

HOST = "127.0.0.1"
SHUTDOWN_S = 3
"""What a rank has to end when told to, before it is killed."""
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
    """Run this Python with these arguments once for each rank, under torch's elastic agent.

    Every rank finds the environment that torchrun gives; see :func:`executor.run.world.join_world`. It
    has to call :func:`executor.run.rank_process.become_rank` first. When one fails, the others are ended; when this
    process ends, however it does, so do they.

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
    with (
        tempfile.TemporaryDirectory(prefix="stagecut-") as folder,
        _environment(_variables(folder, num_ranks)),
        _quiet_agent(),
        _signals_kept(),
    ):
        try:
            elastic_launch(_config(folder, num_ranks, max_restarts), sys.executable)(*arguments)
        except SignalException:
            raise KeyboardInterrupt from None
        except ChildFailedError as fault:
            exit_codes = {rank: failure.exitcode for rank, failure in fault.failures.items()}
            raise _cause(Path(folder), exit_codes, names, timeout_s=timeout_s, verbose=verbose) from None


def _cause(
    folder: Path, exit_codes: Mapping[int, int], names: Sequence[str], *, timeout_s: float, verbose: bool
) -> StagecutError:
    attempt = max((int(path.stem.removeprefix("attempt")) for path in folder.glob("attempt*.rows")), default=0)
    reports = read_reports(folder, attempt=attempt)
    if verbose:
        _print_traces(reports)
    return verdict(reports, exit_codes, names=names, timeout_s=timeout_s)


def _print_traces(reports: Sequence[ErrorReport]) -> None:
    for report in reports:
        sys.stderr.write(f"rank {report.rank}: {report.trace}")


def _config(folder: str, num_ranks: int, max_restarts: int) -> LaunchConfig:
    return LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=num_ranks,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint=f"{HOST}:0",
        local_addr=HOST,
        max_restarts=max_restarts,
        monitor_interval=0.1,
        logs_specs=DefaultLogsSpecs(log_dir=folder),
    )


def _variables(folder: str, num_ranks: int) -> dict[str, str]:
    """Of the ranks' environment; what the user set already stays as it is, but for the first two."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    defaults = {
        "OMP_NUM_THREADS": str(max(1, cores // num_ranks)),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(SHUTDOWN_S),
    }
    return {
        FOLDER: folder,
        LAUNCHER: str(os.getpid()),
        **{name: value for name, value in defaults.items() if name not in os.environ},
    }


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """The agent hands its own environment on to the ranks."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def _quiet_agent() -> Iterator[None]:
    """What the agent logs of a failed rank, we say better."""
    logger = logging.getLogger("torch.distributed.elastic")
    handler, propagates = logging.NullHandler(), logger.propagate
    logger.addHandler(handler)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


@contextmanager
def _signals_kept() -> Iterator[None]:
    """The agent sets handlers of its own and leaves them behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
