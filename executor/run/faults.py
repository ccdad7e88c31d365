"""What goes wrong in a rank: which kind of fault it is, and whose."""

import json
import os
import re
import time
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from stagecut.planner.core.errors import BadInputError, StagecutError
from stagecut.planner.simulator.action_lists import Action

if TYPE_CHECKING:
    from stagecut.executor.play.layout import Role

FOLDER = "STAGECUT_FAULTS"
"""Environment variable: the folder that the ranks of one machine have in common; their reports go there."""
ATTEMPT = "TORCHELASTIC_RESTART_COUNT"
"""Environment variable: as torchrun names it."""


class FaultKind(StrEnum):
    """What went wrong; the first of these that any rank reports is the cause."""

    INPUT = "bad input"
    CHECK = "differs"
    MEMORY = "out of memory"
    ERROR = "error"
    LOSS = "loss"
    HUNG = "hung"
    """Somebody else's: it did not answer in time."""
    LOST = "lost"
    """Somebody else's: the connection to it broke."""


OWN = frozenset({FaultKind.INPUT, FaultKind.CHECK, FaultKind.MEMORY, FaultKind.ERROR, FaultKind.LOSS})
"""Faults of the rank that reports them."""


class RunError(StagecutError):
    """A run that came to an end before its time, and why."""


class CheckError(StagecutError):
    """A step of the plan that differs from the same step of a single process."""

    exit_code = 6


class LossError(StagecutError):
    """A loss, or a norm of gradients, that is no finite number.

    Parameters
    ----------
    message
        It names rank, stage and action.
    rank
        Where it came from.
    """

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class WaitError(StagecutError):
    """Others did not answer, or went away, while this rank waited for them.

    Parameters
    ----------
    ranks
        Those that are to blame, as far as this rank can see: see :meth:`executor.run.whereabouts.Whereabouts.culprits`.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__(f"waited for ranks {', '.join(map(str, ranks))}")
        self.ranks = ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorReport:
    """What one rank says of its end."""

    rank: int
    stages: tuple[int, ...] = ()
    """That it runs; empty where it did not come to know them."""
    device: str = ""
    kind: FaultKind
    message: str
    to_blame: tuple[int, ...] = ()
    """Ranks that this one waited for in vain, or the one that computed the loss."""
    at_s: float = 0.0
    """Of time.monotonic, which the processes of a machine have in common."""
    trace: str = ""
    """The traceback."""


def describe(
    fault: BaseException, role: "Role | None" = None, *, action: Action | None = None, rank: int = 0
) -> ErrorReport:
    """Say what a fault is, and of which rank.

    Parameters
    ----------
    fault
        As it reached the end of the rank.
    role
        Of the rank, where it is known.
    action
        What the rank did at the time.
    rank
        Where there is no role.
    """
    waited = fault.ranks if isinstance(fault, WaitError) else ()
    root = fault.__cause__ or fault if waited else fault
    kind = _kind_of(root, waits=bool(waited))
    return ErrorReport(
        rank=rank if role is None else role.rank,
        stages=() if role is None else tuple(role.stages),
        device="" if role is None else str(role.device),
        kind=kind,
        message=_message(root, kind, action),
        to_blame=(fault.rank,) if isinstance(fault, LossError) else waited,
        at_s=time.monotonic(),
        trace="".join(traceback.format_exception(fault)),
    )


def write_report(folder: Path, report: ErrorReport, *, attempt: int = 0) -> None:
    """Leave a report for the process that launched this one, in one step."""
    path = folder / f"attempt{attempt}-rank{report.rank}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(report)))
    partial.replace(path)


def read_reports(folder: Path, *, attempt: int) -> tuple[ErrorReport, ...]:
    """The reports of one attempt, in order of time."""
    paths = sorted(folder.glob(f"attempt{attempt}-rank*.json"))
    return tuple(sorted((_report(path) for path in paths), key=lambda report: report.at_s))


def attempt_number() -> int:
    """How many times the run has been started again."""
    return int(os.environ.get(ATTEMPT, "0"))


def _report(path: Path) -> ErrorReport:
    tree = json.loads(path.read_text())
    values = {field.name: tree[field.name] for field in fields(ErrorReport)}
    lists = {name: tuple(values[name]) for name in ("stages", "to_blame")}
    return ErrorReport(**{**values, **lists, "kind": FaultKind(values["kind"])})


_OURS: dict[FaultKind, type[StagecutError]] = {
    FaultKind.INPUT: BadInputError,
    FaultKind.CHECK: CheckError,
    FaultKind.LOSS: LossError,
}
"""Their messages stand for themselves."""
_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|Cannot allocate memory", re.IGNORECASE)
_PLACE = re.compile(r"^\[[^\]]*\.(cc|cpp|h):\d+\](\serr == 0\.)?\s*")
_ADVICE = re.compile(r"\.? This is typically caused by.*")
"""Of gloo, for whom it is another rank that crashed."""
_LATE = re.compile(r"timed? ?out", re.IGNORECASE)
_BROKEN = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection was|gloo/transport|NCCL|TCPStore|socket", re.I
)


def _kind_of(fault: BaseException, *, waits: bool) -> FaultKind:
    for kind, ours in _OURS.items():
        if isinstance(fault, ours):
            return kind
    text = str(fault)
    if _is_memory(fault):
        return FaultKind.MEMORY
    if waits or _is_network(fault):
        return FaultKind.HUNG if _LATE.search(text) else FaultKind.LOST
    return FaultKind.ERROR


def _is_memory(fault: BaseException) -> bool:
    """Of Python, of a GPU, or of torch's allocator for the processor, which raises a plain RuntimeError."""
    names = {kind.__name__ for kind in type(fault).__mro__}
    return bool(names & {"MemoryError", "OutOfMemoryError"}) or (
        isinstance(fault, RuntimeError) and _MEMORY.search(str(fault)) is not None
    )


def _is_network(fault: BaseException) -> bool:
    """Raised by torch.distributed; gloo raises plain RuntimeErrors."""
    names = {kind.__name__ for kind in type(fault).__mro__}
    return "DistError" in names or (isinstance(fault, RuntimeError) and _BROKEN.search(str(fault)) is not None)


def _message(fault: BaseException, kind: FaultKind, action: Action | None) -> str:
    if kind in _OURS:
        return str(fault)
    return ": ".join(_parts(fault, kind, action))


def _parts(fault: BaseException, kind: FaultKind, action: Action | None) -> Iterator[str]:
    if action is not None:
        yield f"{action.op} of samples [{action.lo}, {action.hi}) on stage {action.stage}"
    if kind in {FaultKind.HUNG, FaultKind.LOST}:
        yield _first_line(fault)
    else:
        yield f"{type(fault).__name__}: {_first_line(fault)}".removesuffix(": ")


def _first_line(fault: BaseException) -> str:
    """What it says, without the place in a library's source that torch and gloo begin with, and their advice."""
    lines = _ADVICE.sub("", _PLACE.sub("", str(fault).strip())).splitlines()
    return lines[0] if lines else ""
