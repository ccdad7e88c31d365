"""The host's clock, to read and to wait for."""

import ctypes
import sys
import threading
import time

SPIN_S = 1e-4
"""`time.sleep` returns up to this much late, so the rest of a wait polls the clock."""
PRECISE_SPIN_S = 3e-5
"""The same where the system allows less than its default timer slack of 50 microseconds."""
_PR_SET_TIMERSLACK, _SLACK_NS = 29, 1000
"""From Linux's prctl.h; applies to one thread."""


class Timer:
    """Seconds of `time.monotonic`, which all processes of a machine share."""

    def __init__(self) -> None:
        self._threads = threading.local()

    def now(self) -> float:
        """The time."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Sleep for about this long."""
        time.sleep(seconds)

    def wait_until(self, deadline_s: float) -> None:
        """Return at this time, as exactly as possible; immediately if it has passed."""
        spin_s = self._spin_s()
        while (left_s := deadline_s - time.monotonic()) > spin_s:
            time.sleep(left_s - spin_s)
        while time.monotonic() < deadline_s:
            time.sleep(0.0)  # lets other threads of the process run

    def _spin_s(self) -> float:
        """How long this thread polls the clock; on first use the thread requests precise sleeps."""
        known: float | None = getattr(self._threads, "spin_s", None)
        if known is None:
            known = self._threads.spin_s = PRECISE_SPIN_S if _sleeps_precisely() else SPIN_S
        return known


def _sleeps_precisely() -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, ctypes.c_ulong(_SLACK_NS)) == 0)
