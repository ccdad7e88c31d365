"""Parts of the program that a signal does not end where they stand; see :mod:`planner.cli.process.interruptions`."""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

import click

from stagecut.planner.cli.process.interruptions import INTERRUPTIONS, SIGNALS

T = TypeVar("T")

LOOK_EVERY_S = 0.1
"""A thread that waits without end would not hear of signals on every system."""


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that the first signal sets while the context is open; the second one ends the program.

    What looks at the event may stop early; what does not, such as the writing of a file, is left in peace.
    """
    requested = threading.Event()
    with _instead(requested.set):
        yield requested


@contextmanager
def unwound() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt while the context is open: there are processes to end.

    Further ones are passed over then, for some seconds.
    """

    def unwind() -> None:
        INTERRUPTIONS.num_holds += 1  # until the program ends
        raise KeyboardInterrupt

    with _instead(unwind):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of the context, for some seconds: an answer or a file is written whole."""
    INTERRUPTIONS.num_holds += 1
    try:
        yield
    finally:
        INTERRUPTIONS.num_holds -= 1
        if INTERRUPTIONS.is_due and INTERRUPTIONS.num_holds == 0:
            INTERRUPTIONS.leave()


@contextmanager
def held_silently() -> Iterator[None]:
    """As :func:`held`, in a process that dies of signals otherwise; the one that started it tells of them."""
    with _heard():
        INTERRUPTIONS.claim()
        with held():
            yield


def run_cancellable(work: Callable[[], T], requested: threading.Event) -> T:
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
    if not outcome.done():
        _say_that_it_stops()
    while not outcome.done():
        wait([outcome], timeout=LOOK_EVERY_S)
    return outcome.result()


def _say_that_it_stops() -> None:
    with held():
        if INTERRUPTIONS.claim():
            click.echo("interrupted: stopping with what there is so far; again to abort at once", err=True)


@contextmanager
def _instead(action: Callable[[], None]) -> Iterator[None]:
    """The first signal does this; only the main thread may ask for it, elsewhere nothing changes."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with _heard():
        before, INTERRUPTIONS.instead = INTERRUPTIONS.instead, action
        try:
            yield
        finally:
            INTERRUPTIONS.instead = before


@contextmanager
def _heard() -> Iterator[None]:
    """Hear signals for as long as the context is open where the program as a whole does not."""
    if INTERRUPTIONS.are_heard:
        yield
        return
    before = {number: signal.getsignal(number) for number in SIGNALS}
    INTERRUPTIONS.listen()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        INTERRUPTIONS.forget()
