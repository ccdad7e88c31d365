"""An end that no loop can miss.

Solvers look at their budget and return with what they have. Where one is busy elsewhere for longer, in tables
of thousands of devices say, the same budget is watched from another thread, and :class:`OutOfBudget` is
raised in the solver wherever it stands. What counts is kept by then: best plan and bound are in the search.
"""

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.02
AGAIN_AFTER_S = 0.5
"""An exception that hits code which swallows all of them, as destructors do, is raised again."""


class OutOfBudget(BaseException):
    """Raised in a solver that does not return by itself; like KeyboardInterrupt no fault, and no `Exception`."""


def interruptible(work: Callable[[], T], patience_s: Callable[[], float | None]) -> T | None:
    """Do the work, in this thread; None if it was interrupted.

    Parameters
    ----------
    patience_s
        None while there is no reason to stop; then how long the work may take to return by itself.
    """
    interruption = Interruption(patience_s)
    token = _current.set(interruption)
    try:
        interruption.begin()
        done = work()
        interruption.end()
    except OutOfBudget:
        return None
    else:
        return done
    finally:
        interruption.end()
        _current.reset(token)


class Interruption:
    """Raises :class:`OutOfBudget` in the thread that made it; see :func:`interruptible`."""

    def __init__(self, patience_s: Callable[[], float | None]) -> None:
        self._patience_s = patience_s
        self._thread = threading.get_ident()
        self._lock = threading.Lock()
        self._shields = 0
        self._over = threading.Event()

    def begin(self) -> None:
        """Watch from now on; raise :class:`OutOfBudget` at once where nothing is left from the start."""
        if self._patience_s() == 0.0:
            raise OutOfBudget
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Raise nothing any more; once is enough."""
        with self._lock:
            self._over.set()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Nothing is raised inside; see :func:`uninterrupted`."""
        with self._lock:
            self._shields += 1
        try:
            yield
        finally:
            with self._lock:
                self._shields -= 1

    def _watch(self) -> None:
        while (patience_s := self._patience_s()) is None:
            if self._over.wait(LOOK_EVERY_S):
                return
        self._over.wait(patience_s)
        while not self._over.is_set():
            if self._interrupt():
                self._over.wait(AGAIN_AFTER_S)
            else:
                self._over.wait(LOOK_EVERY_S)

    def _interrupt(self) -> bool:
        """Raise the exception unless the thread is shielded; whether that was done."""
        with self._lock:
            if self._shields or self._over.is_set():
                return False
            # Under the lock: what opens a shield afterwards meets the exception before it goes on.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(OutOfBudget))
            return True


_current: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """For what must not be left half done: calls into C++ that call back, and records of several parts."""
    interruption = _current.get()
    with nullcontext() if interruption is None else interruption.shielded():
        yield
