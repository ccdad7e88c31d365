"""What ends a search early: time, memory, a request to stop, and faults."""

import math
import re
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypedDict, Unpack

from stagecut.planner.core.messages.errors import BadInputError, FaultWarning, UnsupportedError, in_one_line
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import InternalFault, StopCause
from stagecut.planner.solvers.search.interruption import LOOK_EVERY_S, OutOfBudget
from stagecut.planner.solvers.search.options import SolveOptions, StopCheck

MARGIN, LARGEST_MARGIN_S = 0.1, 0.1
"""Solvers are asked to stop this share of the time limit early, at most LARGEST_MARGIN_S, so that they return by it."""
MOST_ANSWER = 0.5
"""Largest share of the time limit set aside for the caller to report the plan."""
STATUS = Path("/proc/self/status")
"""Linux: proc_pid_status(5)."""
SYSTEM = Path("/proc/meminfo")
"""Linux: proc_meminfo(5)."""


def resident_bytes(status: Path = STATUS) -> float | None:
    """VmRSS of this process; None on systems without such a file."""
    return _kilobytes("VmRSS", status)


def room_bytes(limit_bytes: float | None, *, status: Path = STATUS, system: Path = SYSTEM) -> float:
    """How much may still be allocated: up to the limit, else what the system has left; infinite if neither is known."""
    if limit_bytes is not None:
        return limit_bytes - (resident_bytes(status) or 0.0)
    available = _kilobytes("MemAvailable", system)
    return math.inf if available is None else available


def _kilobytes(field: str, path: Path) -> float | None:
    """A field of a file in the format of proc(5), in bytes."""
    try:
        found = re.search(rf"^{field}:\s*(\d+) kB$", path.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024.0 * int(found[1])


class MemoryWatch:
    """Notices when the process holds more memory than it may.

    Raises
    ------
    UnsupportedError
        If the resident memory cannot be read on this system.
    """

    def __init__(self, limit_bytes: float, *, status: Path = STATUS) -> None:
        if resident_bytes(status) is None:
            raise UnsupportedError(f"a memory limit needs {status}, which this system does not have; leave it out")
        self._limit_bytes, self._status = limit_bytes, status
        self._next_look_s = 0.0
        self._exceeded = False

    @property
    def exceeded(self) -> bool:
        """Whether the limit has ever been seen exceeded; reads the file at most every `LOOK_EVERY_S`."""
        now_s = time.monotonic()
        if not self._exceeded and now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_EVERY_S
            self._exceeded = (resident_bytes(self._status) or 0.0) > self._limit_bytes
        return self._exceeded


class RunLimits(TypedDict, total=False):
    """Limits of one run beside its options; each may be left out."""

    cancelled: threading.Event | None
    """Set by the caller, from any thread, to stop the search; the best plan is kept."""
    spent_s: float
    """Seconds of the time limit used up before the search began."""
    answer_s: Callable[[Plan], float]
    """How long the caller will take to report a plan; the time limit covers that too."""


class Budget:
    """Limits of one solver run.

    Raises
    ------
    UnsupportedError
        If the options limit the memory, and this system does not tell how much is in use.
    """

    def __init__(self, options: SolveOptions, **limits: Unpack[RunLimits]) -> None:
        self.options = options
        self.fault: InternalFault | None = None
        self.abandoned = threading.Event()
        """Set once what other threads still do for the search is of no use."""
        self._cancelled = limits.get("cancelled") or threading.Event()
        limit_bytes = options.memory_limit_bytes
        self._memory = None if limit_bytes is None else MemoryWatch(limit_bytes)
        self._ran_out_of_memory = False
        self._next_look_s, self._room_bytes = 0.0, math.inf
        self._started = time.perf_counter()
        limit_s = math.inf if options.time_limit_s is None else options.time_limit_s
        self._limit_s = max(0.0, limit_s - limits.get("spent_s", 0.0))
        self._answer_s: Callable[[Plan], float] = limits.get("answer_s", lambda _plan: 0.0)
        self._kept_for_answer_s = 0.0  # `answer_s` of the best plan

    @property
    def seconds(self) -> float:
        """Seconds since the search began."""
        return time.perf_counter() - self._started

    @property
    def seconds_left(self) -> float:
        """Seconds until the time limit asks the search to stop; infinite without a limit, never negative."""
        return max(0.0, self._until_limit_s - min(MARGIN * self._limit_s, LARGEST_MARGIN_S))

    @property
    def _until_limit_s(self) -> float:
        # `seconds_left` without the margin in which a solver asked to stop may still return.
        return self._limit_s - min(self._kept_for_answer_s, MOST_ANSWER * self._limit_s) - self.seconds

    def patience_s(self) -> float | None:
        """How long a solver may still take to return; None while there is no reason to stop."""
        match self.stop_cause:
            case None:
                return None
            case StopCause.TIME:
                return max(0.0, self._until_limit_s)
            case StopCause.USER | StopCause.FAULT:
                return LARGEST_MARGIN_S
            case StopCause.MEMORY:
                return 0.0

    def stop_after(self, seconds: float) -> StopCheck:
        """A check that says to stop once the budget is spent, or that many seconds from now."""
        deadline_s = self.seconds + seconds
        return lambda: self.stop_cause is not None or self.seconds > deadline_s

    @property
    def cancelled(self) -> bool:
        """Whether the caller has asked to stop."""
        return self._cancelled.is_set()

    @property
    def out_of_budget(self) -> bool:
        """Whether to stop now."""
        return self.stop_cause is not None or self.abandoned.is_set()

    @property
    def stop_cause(self) -> StopCause | None:
        """Why to stop now; None if there is no reason."""
        if self.cancelled:
            return StopCause.USER
        if self.fault is not None:
            return StopCause.FAULT
        if self._ran_out_of_memory or (self._memory is not None and self._memory.exceeded):
            return StopCause.MEMORY
        return StopCause.TIME if self.seconds_left <= 0 else None

    @property
    def room_bytes(self) -> float:
        """See :func:`room_bytes`; looked up at most every `LOOK_EVERY_S`."""
        now_s = time.monotonic()
        if now_s >= self._next_look_s:
            self._next_look_s, self._room_bytes = now_s + LOOK_EVERY_S, room_bytes(self.options.memory_limit_bytes)
        return self._room_bytes

    @contextmanager
    def surviving(self) -> Iterator[None]:
        """Let any failure inside end the search as a limit would, keeping the best plan and bound.

        The fault is kept for the result and reported at once as a
        :class:`~stagecut.planner.core.messages.errors.FaultWarning`. A failed allocation counts as the memory limit.
        Errors in the user's input propagate.
        """
        try:
            yield
        except (BadInputError, FaultWarning):
            raise
        except MemoryError:
            self._ran_out_of_memory = True
        except Exception as fault:
            if isinstance(fault.__cause__, OutOfBudget):  # compiled code wraps it, if it hits where results are made
                raise fault.__cause__ from None
            reason = in_one_line(fault)
            if self.fault is None:
                self.fault = InternalFault(reason=reason, traceback="".join(traceback.format_exception(fault)))
            warnings.warn(f"the search ended early: {reason}", FaultWarning, stacklevel=1)
