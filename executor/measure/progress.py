"""Progress of a measurement, on stderr."""

import sys
import time

EVERY_S = 3.0
"""Between two lines, in seconds."""


class Progress:
    """Prints progress of one named piece of work, the first line immediately."""

    def __init__(self, what: str) -> None:
        self._what = what
        self._began_s = self._last_s = time.monotonic()
        sys.stderr.write(f"{what} ...\n")

    def update(self, share: float) -> None:
        """Report the share of the work that is done."""
        now_s = time.monotonic()
        if now_s - self._last_s < EVERY_S or not 0 < share < 1:
            return
        self._last_s = now_s
        left_s = (now_s - self._began_s) * (1 / share - 1)
        sys.stderr.write(f"{self._what}: {share:.0%}, about {left_s:.0f} s left\n")
