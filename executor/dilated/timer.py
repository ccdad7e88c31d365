"""The clock of the host, to read and to wait for."""

import time
from typing import Protocol

SPIN_S = 1e-4
"""`time.sleep` comes back up to this much late: the rest of a wait is spent looking at the clock."""


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

    def now(self) -> float:
        """See :class:`Timer`."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """See :class:`Timer`."""
        time.sleep(seconds)

    def wait_until(self, deadline_s: float) -> None:
        """See :class:`Timer`."""
        while (left_s := deadline_s - time.monotonic()) > SPIN_S:
            time.sleep(left_s - SPIN_S)
        while time.monotonic() < deadline_s:
            time.sleep(0.0)  # lets other threads of the process run
