"""Time spent in each step of a search."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class StepClock:
    """Sums seconds by step; where steps nest, time counts for the innermost only."""

    def __init__(self, now: Callable[[], float] = time.perf_counter) -> None:
        self._now = now
        self._since_s = now()
        self._open: list[str] = []
        self._seconds: dict[str, float] = {}

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Charge the time inside to the named step."""
        self._settle()
        self._open.append(name)
        try:
            yield
        finally:
            self._settle()
            self._open.pop()

    @property
    def seconds(self) -> tuple[tuple[str, float], ...]:
        """Seconds of each step so far, sorted by name."""
        return tuple(sorted(self._seconds.items()))

    def add(self, other: "StepClock") -> None:
        """Add the seconds of another clock, on which no step is open."""
        for name, seconds in other.seconds:
            self._seconds[name] = self._seconds.get(name, 0.0) + seconds

    def _settle(self) -> None:
        now_s = self._now()
        if self._open:
            name = self._open[-1]
            self._seconds[name] = self._seconds.get(name, 0.0) + now_s - self._since_s
        self._since_s = now_s
