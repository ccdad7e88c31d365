"""Pieces of work done by several threads, their results taken in the order in which they were handed out.

So the results do not depend on the number of threads, as long as a piece of work depends on nothing that another one
under way changes. Threads share the memory; compiled loops, HiGHS and most of numpy let others compute meanwhile.
"""

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, wait
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Generic, Self, TypeVar

from stagecut.planner.solvers.search.budget import Budget
from stagecut.planner.solvers.search.interruption import LOOK_EVERY_S, interruptible, uninterrupted

T = TypeVar("T")


class Crew(Generic[T]):
    """Threads that work within a budget, for as long as the crew is entered; with one job the caller does all work."""

    def __init__(self, num_jobs: int, budget: Budget) -> None:
        self._num_threads = num_jobs if num_jobs > 1 else 0
        self._budget = budget
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._waiting: deque[Future[T]] = deque()
        self._own: deque[Callable[[], None]] = deque()  # what the caller will do

    def __enter__(self) -> Self:
        # CPython knows a thread by the number of its creator until it runs: an interruption might hit it in its place.
        with uninterrupted():
            for _ in range(self._num_threads):
                # Not of an executor, which would wait for its threads at exit even if they hang.
                threading.Thread(target=interruptible, args=(self._work, self._patience_s), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        self._budget.abandoned.set()
        for _ in range(self._num_threads):
            self._orders.put(None)

    def __len__(self) -> int:
        """Number of results to come."""
        return len(self._waiting)

    def hand_out(self, work: Callable[[], T], *, is_small: bool = False) -> None:
        """Have a piece of work done, at the latest when its result is taken.

        A small one, in which the interpreter takes more time than compiled loops, is for the caller: it would only keep
        other threads waiting for the interpreter.
        """
        outcome: Future[T] = Future()
        order = partial(_fulfil, outcome, work)
        self._waiting.append(outcome)
        if self._num_threads and not is_small:
            self._orders.put(order)
        else:
            self._own.append(order)

    def next_result(self) -> T:
        """The result of the piece of work that was handed out first; raises what it raised."""
        outcome = self._waiting.popleft()
        while not outcome.done():
            if self._own:
                self._own.popleft()()
            else:  # in short stretches: a thread that waits for a lock cannot be interrupted
                wait([outcome], timeout=LOOK_EVERY_S)
        return outcome.result()

    def _work(self) -> None:
        while (order := self._orders.get()) is not None and not self._budget.abandoned.is_set():
            order()

    def _patience_s(self) -> float | None:
        return 0.0 if self._budget.abandoned.is_set() else self._budget.patience_s()


def _fulfil(outcome: Future[T], work: Callable[[], T]) -> None:
    try:
        outcome.set_result(work())
    except BaseException as fault:
        outcome.set_exception(fault)
        if not isinstance(fault, Exception):  # an interruption, which ends the thread
            raise
