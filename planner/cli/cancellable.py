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


def run_cancellable(work: Callable[[threading.Event], T], *, quiet: bool = False) -> T:
    """Do the work on a thread of its own; SIGINT and SIGTERM set the event it is given.

    The work has to look at the event and to return what it has by then.

    Raises
    ------
    KeyboardInterrupt
        At the second signal.
    """
    cancelled = threading.Event()
    outcome: Future[T] = Future()

    def do() -> None:
        try:
            outcome.set_result(work(cancelled))
        except BaseException as fault:
            outcome.set_exception(fault)

    with _signals_set(cancelled):
        threading.Thread(target=do, daemon=True).start()
        while not outcome.done() and not cancelled.is_set():
            wait([outcome], timeout=LOOK_EVERY_S)
        if not outcome.done() and not quiet:
            click.echo("stopping with the best plan so far; again to abort at once", err=True)
        while not outcome.done():
            wait([outcome], timeout=LOOK_EVERY_S)
    return outcome.result()


@contextmanager
def _signals_set(cancelled: threading.Event) -> Iterator[None]:
    def cancel(_number: int, _frame: FrameType | None) -> None:
        if cancelled.is_set():
            # The thread may be inside HiGHS, which does not survive the end of the interpreter.
            atexit.register(os._exit, INTERRUPTED)
            raise KeyboardInterrupt
        cancelled.set()

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, cancel) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
