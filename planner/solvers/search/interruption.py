"""Stops solvers that do not check their budget in time.

Solvers check their budget and return with what they have. In case one is busy for longer, for example building
tables for thousands of devices, another thread watches the budget too and raises :class:`OutOfBudget` in the
solver wherever it is. Nothing of value is lost: the best plan and bound are already in the search.
"""

import ctypes
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

LOOK_EVERY_S = 0.005
"""How often limits are checked."""
AGAIN_AFTER_S = 0.5
"""The exception is raised again after this long, in case it hit code that swallows exceptions, as destructors do."""


class OutOfBudget(BaseException):
    """Raised in a solver that does not return by itself; like KeyboardInterrupt, neither a fault nor an `Exception`."""


def interruptible(work: Callable[[], T], patience_s: Callable[[], float | None]) -> T | None:
    """Do the work in this thread; return None if it was interrupted.

    Parameters
    ----------
    patience_s
        Returns None while there is no reason to stop, then the seconds the work may still take to return by itself.
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
        try:
            interruption.end()
        except OutOfBudget:  # raised again meanwhile: the next time would be `AGAIN_AFTER_S` from now
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
        """Start watching; raise :class:`OutOfBudget` at once if the budget is already spent."""
        if self._patience_s() == 0.0:
            raise OutOfBudget
        threading.Thread(target=self._watch, daemon=True).start()

    def end(self) -> None:
        """Stop raising; may be called more than once."""
        with self._lock:
            self._over.set()

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """Raise nothing inside; see :func:`uninterrupted`."""
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
        """Raise the exception unless the thread is shielded or in LLVM; return whether it was raised."""
        with self._lock:
            if self._shields or self._over.is_set() or _is_in_llvm(self._thread):
                return False
            # Under the lock, so that a thread about to enter a shield meets the exception before it gets in.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(self._thread), ctypes.py_object(OutOfBudget))
            return True


def _is_in_llvm(thread: int) -> bool:
    """Whether a thread is compiling a loop in LLVM.

    An exception in one of LLVM's callbacks would be printed and forgotten, with the loop half made; one where its lock
    is taken or given back might leave it taken for all threads.
    """
    frame = sys._current_frames().get(thread)
    while frame is not None and frame.f_globals.get("__name__") != "llvmlite.binding.ffi":
        frame = frame.f_back
    return frame is not None


_current: ContextVar[Interruption | None] = ContextVar("interruption", default=None)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Protect what must not be left half done: C++ code that calls back, and updates of several fields."""
    interruption = _current.get()
    with nullcontext() if interruption is None else interruption.shielded():
        yield
