"""A thread that does one thing after another for a stage, which goes on meanwhile."""

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

T = TypeVar("T")


class Orders(Generic[T]):
    """Work in the order in which it was put; what comes after a failure fails alike.

    The thread ends with the process.
    """

    def __init__(self, name: str) -> None:
        self._orders: queue.SimpleQueue[tuple[Callable[[], T], Future[T]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name=name, daemon=True).start()

    def put(self, order: Callable[[], T]) -> "Future[T]":
        """Do this after everything before; its result."""
        outcome: Future[T] = Future()
        self._orders.put((order, outcome))
        return outcome

    def _work(self) -> None:
        fault: BaseException | None = None
        while True:
            order, outcome = self._orders.get()
            try:
                if fault is None:
                    outcome.set_result(order())
            except BaseException as new:
                fault = new
            if fault is not None:
                outcome.set_exception(fault)
