"""Progress of a search while it runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.numerics.compiled import is_compiling
from stagecut.planner.core.result import HistoryPoint, relative_gap
from stagecut.planner.report.labels import percent_label, seconds_label
from stagecut.planner.report.visible_stream import drawn_on

Observer = Callable[[Any], None]
"""Takes the points that the line shows."""
Words = Callable[[Any], str]
"""A point, or None before the first one, in words."""

PLAIN_EVERY_S = 3.0
"""Interval between two plain lines."""
REDRAWS_PER_S = 4.0
"""How often the live line is redrawn."""
COMPILING = "  compiling, once per machine"
"""Ends the line while the search waits for that."""


def time_words(point: HistoryPoint | None) -> str:
    """Best time, bound and gap."""
    best_s = None if point is None else point.objective_s
    bound_s = None if point is None else point.bound_s
    gap = percent_label(relative_gap(best_s, bound_s))
    return f"best {seconds_label(best_s)}  bound {seconds_label(bound_s)}  gap {gap}"


@contextmanager
def progress(stream: TextIO, *, quiet: bool = False, solver: str = "", words: Words = time_words) -> Iterator[Observer]:
    """Show the progress of a search while the context is open.

    On a terminal one live line that disappears at the end; elsewhere a plain line every few seconds and
    one at the end; nothing when quiet. The observer may be called from any thread. Lines begin with the
    name of the solver, if there is one.
    """
    latest = _Latest(f"{visible(solver)}: " if solver else "", words)
    console = Console(file=drawn_on(stream))
    if quiet:
        yield latest.observe
    elif console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, get_renderable=latest.render, transient=True, refresh_per_second=REDRAWS_PER_S):
            yield latest.observe
    else:
        with _plain_lines(latest, stream):
            yield latest.observe


class _Latest:
    """The latest point of the search and a running clock."""

    def __init__(self, head: str, words: Words) -> None:
        self._head, self._words = head, words
        self._started = time.perf_counter()
        self._point: Any = None

    def observe(self, point: Any) -> None:
        self._point = point

    def line(self) -> str:
        seconds = f"{time.perf_counter() - self._started:.1f} s"
        return f"{self._head}{self._words(self._point)}  {seconds}{COMPILING if is_compiling() else ''}"

    def render(self) -> Text:
        return Text(self.line(), no_wrap=True, overflow="ellipsis")


@contextmanager
def _plain_lines(latest: _Latest, stream: TextIO) -> Iterator[None]:
    done = threading.Event()

    def tick() -> None:
        while not done.wait(PLAIN_EVERY_S):
            print(latest.line(), file=stream, flush=True)

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        yield
    finally:
        done.set()
        ticker.join()
        print(latest.line(), file=stream, flush=True)
