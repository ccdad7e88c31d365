"""Several processes of this machine that measure at once, as the ranks of a training do."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from typing import Any, Protocol, TypeVar

from stagecut.planner.core.errors import BadInputError

T = TypeVar("T")

STOP_S = 5.0
"""A process that was asked to end is killed after this time."""


class _Barrier(Protocol):
    def wait(self) -> int: ...


class _Counter(Protocol):
    value: int

    def get_lock(self) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Company:
    """One of several processes at the same work, and what it shares with the others."""

    rank: int
    size: int
    barrier: _Barrier
    finished: _Counter
    over: _Counter
    """Not 0 once the first process has said that the rest is left out."""

    def meet(self) -> None:
        """Wait until all processes are here."""
        self.barrier.wait()

    def agree_to_stop(self, wish: bool) -> bool:
        """Whether to leave out the rest: what the first process wishes, told to all; they meet for it."""
        self.meet()
        if self.rank == 0 and wish:
            self.over.value = 1
        self.meet()
        return self.over.value > 0

    def finish(self) -> None:
        """Count one more piece of work as done by this process."""
        with self.finished.get_lock():
            self.finished.value += 1

    def all_finished(self, pieces: int) -> bool:
        """Whether every process has done that many pieces of work."""
        return self.finished.value >= pieces * self.size


def alone() -> Company:
    """A company of this process only."""
    return Company(
        rank=0,
        size=1,
        barrier=multiprocessing.Barrier(1),
        finished=multiprocessing.Value("i", 0),
        over=multiprocessing.Value("i", 0),
    )


def run_processes(work: Callable[..., T], size: int, *arguments: object) -> list[T]:
    """Run `work(company, *arguments)` in that many new processes at once; the results by rank.

    The processes end with this one, whatever ends it.

    Raises
    ------
    BadInputError
        As a process raised it.
    RuntimeError
        If a process raised anything else, or died: which one, and why.
    """
    context = multiprocessing.get_context("spawn")
    started: list[tuple[SpawnProcess, Connection]] = []
    try:
        with _terminal_unheard():  # Python starts a process of its own with the first barrier
            barrier, finished, over = context.Barrier(size), context.Value("i", 0), context.Value("i", 0)
            companies = [
                Company(rank=rank, size=size, barrier=barrier, finished=finished, over=over) for rank in range(size)
            ]
            started.extend(_start(context, work, company, arguments) for company in companies)
        return _collect(started)
    finally:
        _stop([process for process, _ in started])


def _start(
    context: SpawnContext, work: Callable[..., object], company: Company, arguments: tuple[object, ...]
) -> tuple[SpawnProcess, Connection]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(sender, work, company, arguments), daemon=True)
    process.start()
    sender.close()
    return process, receiver


@contextmanager
def _terminal_unheard() -> Iterator[None]:
    """Processes started meanwhile never hear of Ctrl-C or of the end of the terminal, not even while they import.

    This one hears of it afterwards, and ends them.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _collect(started: list[tuple[SpawnProcess, Connection]]) -> list[Any]:
    results: dict[int, Any] = {}
    pending = {connection: rank for rank, (_, connection) in enumerate(started)}
    while pending:
        for ready in wait(list(pending)):
            assert isinstance(ready, Connection)
            rank = pending.pop(ready)
            results[rank] = _received(ready, rank, started[rank][0])
    return [results[rank] for rank in range(len(started))]


def _received(connection: Connection, rank: int, process: SpawnProcess) -> object:
    try:
        result, complaints, fault = connection.recv()
    except EOFError:
        process.join(STOP_S)
        raise RuntimeError(f"process {rank} ended without an answer, exit code {process.exitcode}") from None
    if complaints is not None:
        raise BadInputError(*complaints)
    if fault is not None:
        error = RuntimeError(f"process {rank}: {fault[-1]}")
        error.add_note("".join(fault))
        raise error
    return result


def _stop(processes: list[SpawnProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(STOP_S)
        if process.is_alive():
            process.kill()


def _child(sender: Connection, work: Callable[..., object], company: Company, arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        sender.send((work(company, *arguments), None, None))
    except BadInputError as fault:
        sender.send((None, fault.complaints, None))
    except Exception as fault:
        sender.send((None, None, traceback.format_exception(fault)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
