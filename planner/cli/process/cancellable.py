"""Parts of the program that a signal does not end on the spot.

The other half is :mod:`stagecut.planner.cli.process.interruptions`.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import TypeVar

import click

from stagecut.planner.cli.process.interruptions import INTERRUPTIONS, SIGNALS

T = TypeVar("T")

STOPPING = "interrupted: stopping; keeping the best result so far. Press Ctrl-C again to abort"

POLL_EVERY_S = 0.1
"""On some systems a thread that waits without a timeout does not receive signals."""


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """An event that the first signal sets while the context is open; the second one ends the program.

    Code that checks the event may stop early; code that does not, such as the writing of a file, carries on.
    """
    requested = threading.Event()
    with _instead(requested.set):
        yield requested


@contextmanager
def unwound() -> Iterator[None]:
    """The first signal raises KeyboardInterrupt while the context is open: there are processes to end.

    Further signals are ignored for some seconds after that.
    """

    def unwind() -> None:
        INTERRUPTIONS.num_holds += 1  # until the program ends
        raise KeyboardInterrupt

    with _instead(unwind):
        yield


@contextmanager
def held() -> Iterator[None]:
    """Signals wait for the end of the context, though not for long: an answer or a file is written whole."""
    INTERRUPTIONS.num_holds += 1
    try:
        yield
    finally:
        INTERRUPTIONS.num_holds -= 1
        if INTERRUPTIONS.is_due and INTERRUPTIONS.num_holds == 0:
            INTERRUPTIONS.leave()


@contextmanager
def held_silently() -> Iterator[None]:
    """Like :func:`held`, in a process that signals would otherwise kill; its launcher reports them."""
    with _heard():
        INTERRUPTIONS.claim()
        with held():
            yield


def run_cancellable(work: Callable[[], T], requested: threading.Event) -> T:
    """Do the work on a thread of its own, so that this one receives signals.

    The work must check the event, which is that of :func:`stop_requests`, and return what it has once it is set.
    """
    outcome: Future[T] = Future()  # an executor would wait for its thread at exit, even if it hangs

    def do() -> None:
        try:
            outcome.set_result(work())
        except BaseException as fault:
            outcome.set_exception(fault)

    threading.Thread(target=do, daemon=True).start()
    is_told = False
    while not outcome.done():
        if requested.is_set() and not is_told:
            is_told = True
            with held():
                if INTERRUPTIONS.claim():
                    click.echo(STOPPING, err=True)
        wait([outcome], timeout=POLL_EVERY_S)
    return outcome.result()


@contextmanager
def _instead(action: Callable[[], None]) -> Iterator[None]:
    """The first signal does this; only the main thread can ask for it, on others nothing changes."""
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
    """Handle signals while the context is open, if the program as a whole does not."""
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
