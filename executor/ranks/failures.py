"""Failures of a rank: what kind each is, and which rank caused it."""

import re
import time
import traceback
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stagecut.executor.schedule.labels import action_label
from stagecut.planner.core.messages.errors import BadInputError, StagecutError
from stagecut.planner.simulator.action_lists import Action


class RankRole(Protocol):
    """What a report says of a rank."""

    @property
    def rank(self) -> int:
        """Its number."""
        ...

    @property
    def stages(self) -> tuple[int, ...]:
        """Its stages."""
        ...

    @property
    def device(self) -> str:
        """Its device, or the host whose parameter server it is."""
        ...


class FailureKind(StrEnum):
    """What went wrong. The first of these that any rank reports is the root cause."""

    INPUT = "bad input"
    CHECK = "differs"
    MEMORY = "out of memory"
    ERROR = "error"
    LOSS = "loss"
    HUNG = "hung"
    """Another rank did not answer in time."""
    LOST = "lost"
    """The connection to another rank broke."""

    @property
    def is_own(self) -> bool:
        """Whether the reporting rank failed itself, rather than noticing that another one did."""
        return self not in (FailureKind.HUNG, FailureKind.LOST)


class RunError(StagecutError):
    """A run that ended early, and why."""


class CheckError(StagecutError):
    """A step of the plan that differs from the same step in a single process."""

    exit_code = 6


class LossError(StagecutError):
    """A loss or gradient norm that is not finite.

    Parameters
    ----------
    message
        Names the rank, stage and action.
    rank
        Where it originated.
    """

    def __init__(self, message: str, *, rank: int) -> None:
        super().__init__(message)
        self.rank = rank


class WaitError(StagecutError):
    """Other ranks timed out or disconnected while this rank was waiting for them.

    Parameters
    ----------
    ranks
        The ranks to blame, as far as this one can tell: see
        :meth:`stagecut.executor.ranks.wait_graph.WaitGraph.culprits`.
    """

    def __init__(self, ranks: tuple[int, ...]) -> None:
        super().__init__(f"waited for ranks {', '.join(map(str, ranks))}")
        self.ranks = ranks


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureReport:
    """How one rank failed."""

    rank: int
    stages: tuple[int, ...] = ()
    """Stages on this rank; empty if it failed before it knew them."""
    device: str = ""
    kind: FailureKind
    message: str
    to_blame: tuple[int, ...] = ()
    """Ranks that this one waited for in vain, or the rank that computed the loss."""
    at_s: float = 0.0
    """On the clock of time.monotonic, which all processes of a machine share."""
    trace: str = ""
    """The traceback."""


def failure_report(
    fault: BaseException, role: RankRole | None = None, *, action: Action | None = None, rank: int = 0
) -> FailureReport:
    """Classify an exception that ends a rank.

    Parameters
    ----------
    role
        The rank's role, if known.
    action
        What the rank was doing.
    rank
        Used if there is no role.
    """
    waited = fault.ranks if isinstance(fault, WaitError) else ()
    root = fault.__cause__ or fault if waited else fault
    kind = _kind_of(root, waits=bool(waited))
    return FailureReport(
        rank=rank if role is None else role.rank,
        stages=() if role is None else role.stages,
        device="" if role is None else role.device,
        kind=kind,
        message=_message(root, kind, action),
        to_blame=(fault.rank,) if isinstance(fault, LossError) else waited,
        at_s=time.monotonic(),
        trace="".join(traceback.format_exception(fault)),
    )


_OURS: dict[FailureKind, type[StagecutError]] = {
    FailureKind.INPUT: BadInputError,
    FailureKind.CHECK: CheckError,
    FailureKind.LOSS: LossError,
}
"""Their messages need no prefix."""
_MEMORY = re.compile(r"can't allocate memory|not enough memory|out of memory|Cannot allocate memory", re.IGNORECASE)
_SOURCE_LINE = re.compile(r"^\[[^\]]*\.(cc|cpp|h):\d+\](\serr == 0\.)?\s*")
_ADVICE = re.compile(r"\.? This is typically caused by.*")
"""Gloo's, which assumes that a remote rank crashed."""
_LATE = re.compile(r"timed? ?out", re.IGNORECASE)
_BROKEN = re.compile(
    r"closed by peer|reset by peer|broken pipe|connection was|gloo/transport|NCCL|TCPStore|socket", re.I
)


def _kind_of(fault: BaseException, *, waits: bool) -> FailureKind:
    for kind, ours in _OURS.items():
        if isinstance(fault, ours):
            return kind
    text = str(fault)
    class_names = {parent.__name__ for parent in type(fault).__mro__}
    is_runtime_error = isinstance(fault, RuntimeError)  # what torch's CPU allocator and gloo raise
    if class_names & {"MemoryError", "OutOfMemoryError"} or (is_runtime_error and _MEMORY.search(text)):
        return FailureKind.MEMORY
    if waits or "DistError" in class_names or (is_runtime_error and _BROKEN.search(text)):
        return FailureKind.HUNG if _LATE.search(text) else FailureKind.LOST
    return FailureKind.ERROR


def _message(fault: BaseException, kind: FailureKind, action: Action | None) -> str:
    if kind in _OURS:
        return str(fault)
    place = f"{action_label(action)}: " if action else ""
    name = f"{type(fault).__name__}: " if kind.is_own else ""
    return f"{place}{name}{_first_line(fault)}".removesuffix(": ")


def _first_line(fault: BaseException) -> str:
    """The first line, without the source location that torch and gloo put first, and without their advice."""
    lines = _ADVICE.sub("", _SOURCE_LINE.sub("", str(fault).strip())).splitlines()
    return lines[0] if lines else ""
