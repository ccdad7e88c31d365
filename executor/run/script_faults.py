"""Faults that end a rank of somebody's own script: one message a run."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import TracebackType

import torch.distributed as dist

from stagecut.executor.run.claims import is_first_to_tell
from stagecut.executor.run.faults import FOLDER, OWN, attempt_number, describe, write_report
from stagecut.executor.run.meeting_place import meeting_place
from stagecut.executor.run.rank_process import is_rank
from stagecut.executor.run.verdict import told
from stagecut.planner.core.errors import StagecutError

_PATIENCE = timedelta(seconds=5)
"""With the store; a fault is told anyway."""
_SEEN = "seen_by_stagecut"
"""Set on faults that went through here; torch puts a hook of its own between two of ours."""


def tell_faults(store: dist.Store | None = None) -> None:  # type: ignore[name-defined]
    """From now on, tell what ends this rank as `plan run` does; a process that is no rank stays as it is.

    A fault of ours, or a connection to another rank that broke, is a line without a traceback; of anything else
    the traceback stays. Each is told by the first rank that has it, however many have the same; and what ranks
    notice of the end of another one is told only where that one could not say why.

    Parameters
    ----------
    store
        That all ranks have in common; None: found when it is needed.
    """
    if is_rank():
        sys.excepthook = _Teller(sys.excepthook, store)


@dataclass(frozen=True, slots=True)
class _Teller:
    before: Callable[[type[BaseException], BaseException, TracebackType | None], object]
    store: dist.Store | None  # type: ignore[name-defined]

    def __call__(self, kind: type[BaseException], fault: BaseException, trace: TracebackType | None) -> None:
        """See :data:`sys.excepthook`."""
        if not isinstance(fault, Exception) or hasattr(fault, _SEEN):
            self.before(kind, fault, trace)
            return
        setattr(fault, _SEEN, True)
        report, folder = describe(fault, rank=int(os.environ["RANK"])), os.environ.get(FOLDER)
        if folder is not None:
            write_report(Path(folder), report, attempt=attempt_number())
        is_plain = isinstance(fault, StagecutError) or report.kind not in OWN
        if is_plain and folder is not None:  # the launcher tells it
            return
        if is_first_to_tell(report, self.store or _found_store()):
            if is_plain:
                sys.stderr.write(f"Error: {told(report)}\n")
            else:
                self.before(kind, fault, trace)


def _found_store() -> dist.Store | None:  # type: ignore[name-defined]
    with suppress(StagecutError, RuntimeError, OSError):
        return meeting_place(_PATIENCE)
    return None
