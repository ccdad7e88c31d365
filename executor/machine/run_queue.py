"""Run-queue delay: time for which this process was ready to run but other programs held the processors.

For each thread, Linux counts the nanoseconds it ran, the nanoseconds it waited in the run queue and its time slices,
in `/proc/self/task/*/schedstat` (kernel documentation, scheduler/sched-stats).
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TASKS = Path("/proc/self/task")
WORKING_SHARE = 0.05
"""Threads other than the main one that ran for less of the time only carry messages; work does not wait for them."""


class ThreadTimes(NamedTuple):
    """Time a thread has spent so far, in nanoseconds."""

    ran_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMark:
    """A point in time, and how long every thread had run and waited until then."""

    at_s: float
    threads: Mapping[str, ThreadTimes]


class RunQueue:
    """The run-queue delay of the working threads of this process.

    Parameters
    ----------
    tasks
        Folder with one subfolder per thread.
    main
        Name of the main thread, which always counts: even if it sleeps most of the time, it must be able to wake up.
    """

    def __init__(self, tasks: Path = TASKS, *, main: str | None = None) -> None:
        self._tasks, self._main = tasks, main or str(os.getpid())

    def mark(self) -> QueueMark:
        """Remember the current state."""
        return QueueMark(threads=self._threads(), at_s=time.monotonic())

    def share_since(self, mark: QueueMark) -> float:
        """Seconds that working threads waited since the mark, as a share of the time passed; 0 where not counted.

        Threads add up, because the work of one mostly waits for the others. Threads that have ended do not count.
        """
        passed_ns = 1e9 * (time.monotonic() - mark.at_s)
        waited_ns = 0
        for name, now in self._threads().items():
            before = mark.threads.get(name, ThreadTimes(0, 0))
            if name == self._main or now.ran_ns - before.ran_ns >= WORKING_SHARE * passed_ns:
                waited_ns += max(0, now.waited_ns - before.waited_ns)
        return waited_ns / passed_ns if passed_ns > 0 else 0.0

    def _threads(self) -> dict[str, ThreadTimes]:
        try:
            threads = [task.name for task in self._tasks.iterdir()]
        except OSError:
            return {}
        return {thread: _times(self._tasks / thread / "schedstat") for thread in threads}


def _times(path: Path) -> ThreadTimes:
    """The first two fields; zeros for a thread that has just ended, or a kernel that does not count."""
    try:
        fields = path.read_text().split()
    except OSError:
        return ThreadTimes(0, 0)
    return ThreadTimes(int(fields[0]), int(fields[1])) if len(fields) >= 3 else ThreadTimes(0, 0)
