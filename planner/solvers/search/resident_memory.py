"""Resident memory of this process, and a watch on it."""

import math
import re
import time
from pathlib import Path

from stagecut.planner.core.errors import UnsupportedError

STATUS = Path("/proc/self/status")
"""Linux: proc_pid_status(5)."""
SYSTEM = Path("/proc/meminfo")
"""Linux: proc_meminfo(5)."""
LOOK_EVERY_S = 0.02


def resident_bytes(status: Path = STATUS) -> float | None:
    """VmRSS; None where the system does not tell it in this way."""
    try:
        found = re.search(r"^VmRSS:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
    except OSError:
        return None
    return None if found is None else 1024.0 * int(found[1])


def room_bytes(limit_bytes: float | None, *, status: Path = STATUS, system: Path = SYSTEM) -> float:
    """What may still be allocated: up to a limit, or all that the system has left; infinite where neither is known."""
    if limit_bytes is not None:
        return limit_bytes - (resident_bytes(status) or 0.0)
    try:
        found = re.search(r"^MemAvailable:\s*(\d+) kB$", system.read_text(), re.MULTILINE)
    except OSError:
        return math.inf
    return math.inf if found is None else 1024.0 * int(found[1])


class MemoryWatch:
    """Notices that the process holds more memory than it may.

    Raises
    ------
    UnsupportedError
        If the resident memory cannot be read on this system.
    """

    def __init__(self, limit_bytes: float, *, status: Path = STATUS) -> None:
        if resident_bytes(status) is None:
            raise UnsupportedError(f"a memory limit needs {status}, which this system does not have; leave it out")
        self._limit_bytes = limit_bytes
        self._status = status
        self._next_look_s = 0.0
        self._exceeded = False

    @property
    def exceeded(self) -> bool:
        """Whether the limit has been exceeded at any look so far; looks again at most every `LOOK_EVERY_S`."""
        now_s = time.monotonic()
        if not self._exceeded and now_s >= self._next_look_s:
            self._next_look_s = now_s + LOOK_EVERY_S
            self._exceeded = (resident_bytes(self._status) or 0.0) > self._limit_bytes
        return self._exceeded
