"""Ctrl-C and other signals at any moment: one line on stderr, and exit code 130.

They are handled from before anything else is imported to the very end. Unless a part of the program asks for
something else, a signal ends it on the spot: an exception raised by a handler could get lost in a destructor, or in
an import that takes it for its own failure.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

INTERRUPTED = 130
"""Exit code of an interrupted program."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PATIENCE_S = 5.0
"""Seconds after the first signal during which further ones wait for a part that should not be cut short."""
LINE = "Error: interrupted"
_SHOW_CURSOR = b"\x1b[?25h"
"""A live progress line hides it."""


class Interruptions:
    """Signals so far, and what the next one does."""

    def __init__(self) -> None:
        self.are_heard = False
        """Whether :meth:`listen` was called; not so where the command line is called as a function."""
        self.first_s: float | None = None
        """When the first signal came, by the monotonic clock."""
        self.instead: Callable[[], None] | None = None
        """What the first signal does instead of ending the program."""
        self.num_holds = 0
        """Number of parts in progress that should not be cut short."""
        self.is_due = False
        """Whether a signal waits for the end of such a part."""
        self.is_told = False
        self.is_leaving = False

    def listen(self) -> None:
        """Handle signals from now on, except a SIGHUP that is ignored, as under nohup."""
        self.are_heard = True
        for number in SIGNALS:
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, self.hear)

    def forget(self) -> None:
        """Start over, once others handle signals again."""
        self.are_heard = self.is_due = self.is_told = False
        self.first_s, self.num_holds = None, 0

    def hear(self, _number: int, _frame: FrameType | None) -> None:
        """Handle one signal."""
        if self.is_leaving:
            return
        now_s, is_first = time.monotonic(), self.first_s is None
        self.first_s = now_s if self.first_s is None else self.first_s
        if is_first and self.instead is not None:
            self.instead()
        elif self.num_holds > 0 and now_s - self.first_s < PATIENCE_S:
            self.is_due = True
        else:
            self.leave()

    def leave(self) -> None:
        """End the program, whatever its threads are doing: HiGHS does not survive the shutdown of the interpreter."""
        self.is_leaving = True
        if self.instead is not None and os.isatty(2):
            self._write(_SHOW_CURSOR)
        if self.claim():
            self._write(f"{LINE}\n".encode())
        os._exit(INTERRUPTED)

    def claim(self) -> bool:
        """Whether the caller is to print the line: only the first one, once the program listens."""
        is_first = not (self.are_heard and self.is_told)
        self.is_told = True
        return is_first

    def _write(self, content: bytes) -> None:
        with suppress(OSError):  # nobody reads it
            os.write(2, content)


INTERRUPTIONS = Interruptions()
"""The signals of this process."""
