"""Callbacks at given times of the host's clock, one after another on a thread."""

import threading
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count

from stagecut.executor.dilated.timer import Timer


class EventQueue:
    """Calls functions when their time has come; those of the same time by their order, then as they were given."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._heap: list[tuple[float, float, int, Callable[[], object]]] = []
        self._numbers = count()
        self._changed = threading.Condition()
        self._own = threading.local()
        threading.Thread(target=self._work, name="events", daemon=True).start()

    def now(self) -> float:
        """The time; inside a callback the one that it was due at, so that no delay of the thread adds up."""
        due_s: float | None = getattr(self._own, "due_s", None)
        return self._timer.now() if due_s is None else due_s

    def at(self, time_s: float, callback: Callable[[], object], *, order: float = 0.0) -> None:
        """Call a function at a time, or at once if it has passed."""
        with self._changed:
            heappush(self._heap, (time_s, order, next(self._numbers), callback))
            self._changed.notify()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._heap or (left_s := self._heap[0][0] - self._timer.now()) > 0:
                    self._changed.wait(left_s if self._heap else None)
                due_s, _, _, callback = heappop(self._heap)
            self._own.due_s = due_s
            callback()
