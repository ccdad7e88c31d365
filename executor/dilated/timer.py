"""The clock of the host, to read and to wait for."""

import ctypes
import sys
import threading
import time
from typing import Protocol

SPIN_S = 1e-4
"""`time.sleep` comes back up to this much late: the rest of a wait is spent looking at the clock."""
PRECISE_SPIN_S = 3e-5
"""The same where the system lets us ask for less than its usual slack of 50 microseconds."""
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1000
"""Of Linux's prctl.h; for one thread."""


class Timer(Protocol):
    """Seconds of a clock."""

    def now(self) -> float:
        """The time."""
        ...

    def sleep(self, seconds: float) -> None:
        """Let about so much time pass."""
        ...

    def wait_until(self, deadline_s: float) -> None:
        """Return at a moment, as exactly as possible; at once if it has passed."""
        ...


class HostTimer:
    """Seconds of `time.monotonic`, which all processes of a machine have in common."""

    def __init__(self) -> None:
        self._threads = threading.local()

    def now(self) -> float:
        """See :class:`Timer`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See :class:`Timer`."""
        time.sleep(seconds)

    def wait_until(self, deadline_s: float) -> None:
        """See :class:`Timer`."""
        spin_s = self._spin_s()
        while (left_s := deadline_s - time.monotonic()) > spin_s:
            time.sleep(left_s - spin_s)
        while time.monotonic() < deadline_s:
            time.sleep(0.0)  # lets other threads of the process run

    def _spin_s(self) -> float:
        """Of this thread, which has asked for precise sleeps once."""
        known: float | None = getattr(self._threads, "spin_s", None)
        if known is None:
            known = self._threads.spin_s = PRECISE_SPIN_S if _sleeps_precisely() else SPIN_S
        return known


def _sleeps_precisely() -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS)) == 0)
