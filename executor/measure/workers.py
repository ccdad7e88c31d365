"""Several processes of this machine that measure at the same time, as the ranks of a training run would."""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.reduction import DupFd
from typing import Any, TypeVar

from stagecut.planner.core.messages.errors import BadInputError

T = TypeVar("T")

_SHARED = ["torch", "torch._dynamo", "torch.distributed"]
"""Takes seconds to import. The first optimizer imports `torch._dynamo`."""
STOP_S = 5.0
"""How long a process has to end after SIGTERM before it is killed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """One of several processes that do the same work, and what it shares with the others."""

    rank: int
    size: int
    barrier: Any
    """From multiprocessing or threading."""
    finished: Any
    """A shared counter: see multiprocessing.Value."""
    over: Any
    """Nonzero once the first process has decided to skip the rest."""

    def meet(self) -> None:
        """Wait for all processes."""
        self.barrier.wait()

    def agree_to_stop(self, wish: bool) -> bool:
        """Whether to skip the rest, as decided by the first process; a collective."""
        self.meet()
        if self.rank == 0 and wish:
            self.over.value = 1
        self.meet()
        return bool(self.over.value)

    def finish(self) -> None:
        """Count one more piece of work as done by this process."""
        with self.finished.get_lock():
            self.finished.value += 1

    def all_finished(self, pieces: int) -> bool:
        """Whether every process has done so many pieces of work."""
        return bool(self.finished.value >= pieces * self.size)


def single_worker() -> Worker:
    """A worker without others."""
    return Worker(
        rank=0,
        size=1,
        barrier=multiprocessing.Barrier(1),
        finished=multiprocessing.Value("i", 0),
        over=multiprocessing.Value("i", 0),
    )


def run_workers(work: Callable[..., T], size: int, *arguments: object) -> list[T]:
    """Run `work(worker, *arguments)` in `size` new processes at once; return the results by rank.

    They are forked from a process that has imported torch and does nothing else: it may use no GPU, since a CUDA
    context does not survive a fork. The processes end with this one, whatever ends it.

    Raises
    ------
    BadInputError
        If a process raised it.
    RuntimeError
        If a process raised anything else, or died; it says which one, and why.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_SHARED)
    started: list[tuple[ForkServerProcess, Connection]] = []
    try:
        with _terminal_signals_blocked():  # the first barrier starts a helper process of Python's
            barrier, finished, over = context.Barrier(size), context.Value("i", 0), context.Value("i", 0)
            workers = [
                Worker(rank=rank, size=size, barrier=barrier, finished=finished, over=over) for rank in range(size)
            ]
            started.extend(_start(context, work, worker, arguments) for worker in workers)
        return _collect(started)
    finally:
        _stop([process for process, _ in started])


def _start(
    context: ForkServerContext, work: Callable[..., object], worker: Worker, arguments: tuple[object, ...]
) -> tuple[ForkServerProcess, Connection]:
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(_Surroundings(), sender, work, worker, arguments), daemon=True)
    process.start()
    sender.close()
    return process, receiver


@contextmanager
def _terminal_signals_blocked() -> Iterator[None]:
    """Processes started inside never receive Ctrl-C or a hang-up, not even while they import.

    This process receives them afterwards, and ends the others.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _collect(started: list[tuple[ForkServerProcess, Connection]]) -> list[Any]:
    results: dict[int, Any] = {}
    pending = {connection: rank for rank, (_, connection) in enumerate(started)}
    while pending:
        for ready in wait(list(pending)):
            assert isinstance(ready, Connection)
            rank = pending.pop(ready)
            results[rank] = _received(ready, rank, started[rank][0])
    return [results[rank] for rank in range(len(started))]


def _received(connection: Connection, rank: int, process: ForkServerProcess) -> object:
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


def _stop(processes: list[ForkServerProcess]) -> None:
    for process in processes:
        process.terminate()
    for process in processes:
        process.join(STOP_S)
        if process.is_alive():
            process.kill()


class _Surroundings:
    """Pickled for a new process, it becomes what this one writes to, and its environment.

    The process it is forked from may have been started when they were others.
    """

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return _surround, (dict(os.environ), DupFd(1), DupFd(2))


def _surround(environment: dict[str, str], stdout: Any, stderr: Any) -> None:
    os.environ.update(environment)
    os.dup2(stdout.detach(), 1)
    os.dup2(stderr.detach(), 2)


def _child(
    _: object, sender: Connection, work: Callable[..., object], worker: Worker, arguments: tuple[object, ...]
) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        sender.send((work(worker, *arguments), None, None))
    except BadInputError as fault:
        sender.send((None, fault.complaints, None))
    except Exception as fault:
        sender.send((None, None, traceback.format_exception(fault)))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
