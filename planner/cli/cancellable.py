"""Work that Ctrl-C stops politely: the first one asks it to finish, the second one ends the program."""

import atexit
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from types import FrameType
from typing import TypeVar

import click

from planner.cli.faults import INTERRUPTED

T = TypeVar("T")

LOOK_EVERY_S = 0.1
"""A thread that waits without end would not hear of signals on every system."""


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that SIGINT or SIGTERM sets while the context is open; the second one raises KeyboardInterrupt.

    What looks at the event may stop early; what does not, such as the writing of a file, is left in peace.
    """
    requested = threading.Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        if requested.is_set():
            # A thread may be inside HiGHS, which does not survive the end of the interpreter.
            atexit.register(os._exit, INTERRUPTED)
            raise KeyboardInterrupt
        requested.set()

    with _handled(request, signal.SIGINT, signal.SIGTERM):
        yield requested


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """SIGTERM raises KeyboardInterrupt while the context is open, as SIGINT does."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    with _handled(interrupt, signal.SIGTERM):
        yield


def run_cancellable(work: Callable[[], T], requested: threading.Event, *, quiet: bool = False) -> T:
    """Do the work on a thread of its own, so that signals are heard meanwhile.

    Parameters
    ----------
    work
        Has to look at the event, and to return what it has once that is set.
    requested
        Of :func:`stop_requests`.
    """
    outcome: Future[T] = Future()

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as fault:
            outcome.set_exception(fault)

    threading.Thread(target=do, daemon=True).start()
    while not outcome.done() and not requested.is_set():
        wait([outcome], timeout=LOOK_EVERY_S)
    if not outcome.done() and not quiet:
        click.echo("stopping with what there is so far; again to abort at once", err=True)
    while not outcome.done():
        wait([outcome], timeout=LOOK_EVERY_S)
    return outcome.result()


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None], *numbers: signal.Signals) -> Iterator[None]:
    """Handle these signals so; only the main thread may, elsewhere they stay as they are."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in numbers}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
