"""A process that is one rank: how it starts, and how it ends when something goes wrong."""

import atexit
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from stagecut.executor.ranks.environment import LAUNCHER, attempt_number, launcher_folder
from stagecut.executor.ranks.failures import CheckError, FailureKind, FailureReport
from stagecut.executor.ranks.reporting import is_first_to_report, write_report
from stagecut.executor.ranks.root_cause import failure_message
from stagecut.planner.core.messages.errors import BadInputError, StagecutError
from stagecut.planner.core.messages.visible import visible_lines

if TYPE_CHECKING:
    from stagecut.executor.ranks.world import World

_PR_SET_PDEATHSIG = 1
_INTERRUPTED = 130
_GC_THRESHOLD = 10_000
"""Objects made since the last search for unreachable cycles, after which the youngest are searched again."""
_EXIT_CODES = {FailureKind.INPUT: BadInputError.exit_code, FailureKind.CHECK: CheckError.exit_code}


def become_rank() -> None:
    """End together with the launcher, and immediately on a signal; call this first.

    Python's own signal handlers would run only after the current call into torch, which may be blocked on
    another rank. From here on, garbage is collected less often: what torch imports never becomes garbage, but searching
    it takes a quarter of the processor time of starting and ending a rank.
    """
    gc.set_threshold(_GC_THRESHOLD)
    atexit.register(gc.freeze)  # spares the interpreter's own searches at the end
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    end_with_launcher()


def end_with_launcher() -> None:
    """Be killed when the process that started this one ends."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    launcher = os.environ.get(LAUNCHER)
    if launcher is not None and os.getppid() != int(launcher):  # it died before the line above
        os._exit(_INTERRUPTED)


def end_rank(report: FailureReport, world: "World | None" = None, *, names: Sequence[str] = ()) -> NoReturn:
    """Report a failure, to the launcher or else on stderr, and exit without waiting for anybody.

    Ranks that did not answer in time are killed: a stopped process reacts to nothing else, and its launcher would
    wait for it.

    Parameters
    ----------
    world
        What :func:`stagecut.executor.ranks.world.join_world` returned; None if the rank failed before that.
    names
        What to call each rank in messages; `rank 3` by default.
    """
    folder = launcher_folder()
    if folder is not None:
        write_report(folder, report, attempt=attempt_number())
    elif is_first_to_report(report, world and world.store):
        sys.stderr.write(f"Error: {visible_lines(failure_message(report, names))}\n")
    if world is not None and report.kind is FailureKind.HUNG:
        _kill(report.to_blame, world)
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # a closed stream may be what the report is about
            stream.flush()
    os._exit(_EXIT_CODES.get(report.kind, StagecutError.exit_code))


def end_hung(report: FailureReport, world: "World") -> None:
    """Report to the launcher which ranks did not answer in time, kill them, and go on without them."""
    folder = launcher_folder()
    if folder is not None:
        write_report(folder, report, attempt=attempt_number())
    _kill(report.to_blame, world)


def _kill(ranks: Iterable[int], world: "World") -> None:
    for pid in map(world.wait_graph.pid_of, ranks):
        if pid not in {0, os.getpid()}:  # 0: on another host, or not started
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
