"""A process that is one rank: how it begins, and how it ends when something goes wrong."""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from stagecut.executor.run.claims import is_first_to_tell
from stagecut.executor.run.faults import (
    FOLDER,
    OWN,
    CheckError,
    ErrorReport,
    FaultKind,
    attempt_number,
    read_reports,
    write_report,
)
from stagecut.executor.run.verdict import told
from stagecut.executor.run.whereabouts import Whereabouts
from stagecut.planner.core.errors import BadInputError, StagecutError
from stagecut.planner.core.visible import visible_lines

if TYPE_CHECKING:
    import torch.distributed as dist

LAUNCHER = "STAGECUT_LAUNCHER"
"""Environment variable: process id of the launcher."""
_PR_SET_PDEATHSIG = 1
_INTERRUPTED = 130
_EXIT_CODES = {FaultKind.INPUT: BadInputError.exit_code, FaultKind.CHECK: CheckError.exit_code}


def is_rank() -> bool:
    """Whether this process was started as one of several, by torchrun or by :func:`executor.run.launch.launch`."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def is_on_one_machine() -> bool:
    """Whether all ranks are, as far as the environment says."""
    return os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")


def become_rank() -> None:
    """End with the launcher, however that ends, and at once when told to.

    To be called first of all. Python's own handlers would wait for the end of a call into torch, which
    may be waiting for another rank.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER)
    if launcher is not None and os.getppid() != int(launcher):  # it went before the line above
        os._exit(_INTERRUPTED)


def former_fault() -> str | None:
    """What ended the attempt before this one, as far as its ranks could say; None in the first attempt."""
    attempt, folder = attempt_number(), os.environ.get(FOLDER)
    if attempt == 0:
        return None
    reports = read_reports(Path(folder), attempt=attempt - 1) if folder else ()
    own = [report for report in reports if report.kind in OWN] or reports
    return told(own[0]) if own else "a rank died"


def end_rank(
    report: ErrorReport,
    whereabouts: Whereabouts | None = None,
    *,
    names: Sequence[str] = (),
    store: "dist.Store | None" = None,  # type: ignore[name-defined]
) -> NoReturn:
    """Leave a report, for the launcher where there is one, on stderr elsewhere; and end without waiting for anybody.

    Parameters
    ----------
    whereabouts
        Where to find the ranks that did not answer in time: they are killed, for a stopped process hears
        nothing else, and its launcher would wait for it.
    names
        What to call each rank, by rank; `rank 3` by default.
    store
        That all ranks have in common, so that one of them tells what all have seen.
    """
    folder = os.environ.get(FOLDER)
    if folder is not None:
        write_report(Path(folder), report, attempt=attempt_number())
    elif is_first_to_tell(report, store):
        sys.stderr.write(f"Error: {visible_lines(told(report, names))}\n")
    if whereabouts is not None and report.kind is FaultKind.HUNG:
        for rank in report.to_blame:
            _kill(whereabouts.pid_of(rank))
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # one that takes nothing any more may be what the report is about
            stream.flush()
    os._exit(_EXIT_CODES.get(report.kind, StagecutError.exit_code))


def _kill(pid: int) -> None:
    if pid not in {0, os.getpid()}:  # 0: on another host, or not started
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
