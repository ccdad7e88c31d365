"""Failures that end a rank of a user's own script: one message per run."""

import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType

import torch.distributed as dist

from stagecut.executor.ranks import environment
from stagecut.executor.ranks.failures import failure_report
from stagecut.executor.ranks.rendezvous import rendezvous
from stagecut.executor.ranks.reporting import is_first_to_report, write_report
from stagecut.executor.ranks.root_cause import failure_message
from stagecut.planner.core.messages.errors import StagecutError

_STORE_TIMEOUT = timedelta(seconds=5)
"""The failure is reported even if the store does not answer."""
_SEEN = "seen_by_stagecut"
"""Set on exceptions handled here; torch puts a hook of its own between two of ours."""


def install_excepthook(store: dist.Store | None = None) -> None:  # type: ignore[name-defined]
    """From now on, report what ends this rank the way `plan run` does. No effect in a process that is not a rank.

    Our own errors and broken connections to other ranks are one line without a traceback; anything else keeps
    its traceback. Of several ranks with the same failure only the first reports it, and what ranks notice of
    another one's end is reported only if that rank could not say why.

    Parameters
    ----------
    store
        Shared by all ranks; None: connected to when needed.
    """
    if environment.is_rank():
        sys.excepthook = _ReportingHook(sys.excepthook, store)


@dataclass(frozen=True, slots=True)
class _ReportingHook:
    previous: Callable[[type[BaseException], BaseException, TracebackType | None], object]
    store: dist.Store | None  # type: ignore[name-defined]

    def __call__(self, kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        """See :data:`sys.excepthook`."""
        if not isinstance(fault, Exception) or hasattr(fault, _SEEN):
            self.previous(kind, fault, trace)
            return
        setattr(fault, _SEEN, True)
        report, folder = failure_report(fault, rank=environment.rank()), environment.launcher_folder()
        if folder is not None:
            write_report(folder, report, attempt=environment.attempt_number())
        is_one_line = isinstance(fault, StagecutError) or not report.kind.is_own
        if is_one_line and folder is not None:  # the launcher prints it
            return
        if is_first_to_report(report, self.store or _connected_store()):
            if is_one_line:
                sys.stderr.write(f"Error: {failure_message(report)}\n")
            else:
                self.previous(kind, fault, trace)


def _connected_store() -> dist.Store | None:  # type: ignore[name-defined]
    with suppress(StagecutError, RuntimeError, OSError):
        return rendezvous(_STORE_TIMEOUT)
    return None
