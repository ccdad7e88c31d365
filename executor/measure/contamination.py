"""Time that this process was ready to run but had no processor: others were at work meanwhile.

Linux counts for every thread, in `/proc/self/task/*/schedstat`, the nanoseconds it ran, the nanoseconds it
waited in the run queue, and its time slices (kernel documentation, scheduler/sched-stats).
"""

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from stagecut.planner.core.run_record import MAX_RUN_QUEUE_SHARE

TASKS = Path("/proc/self/task")
CLEAN_SHARE = MAX_RUN_QUEUE_SHARE
"""What took longer in the run queue than this share of its time is contaminated."""
WORKING_SHARE = 0.05
"""A thread beside the main one that ran for less of the time carries messages: the work does not wait with it."""


class ThreadTimes(NamedTuple):
    """What a thread has spent so far, in nanoseconds."""

    ran_ns: int
    waited_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMark:
    """A moment, and how long every thread had waited until then."""

    at_s: float
    threads: Mapping[str, ThreadTimes]
    """By thread."""


class RunQueue:
    """The run-queue delay of the working threads of this process.

    Parameters
    ----------
    tasks
        Folder with one folder for each thread.
    main
        Name of the main thread, which always counts: asleep most of the time, it has to wake up when it wants to.
    """

    def __init__(self, tasks: Path = TASKS, *, main: str | None = None) -> None:
        self._tasks, self._main = tasks, main or str(os.getpid())

    def mark(self) -> QueueMark:
        """Remember now."""
        return QueueMark(threads=self._threads(), at_s=time.monotonic())

    def share_since(self, mark: QueueMark) -> float:
        """Seconds that working threads waited since the mark over the seconds that passed; 0 where none are counted.

        Threads add up: the work of one mostly waits for the others. A thread that is gone counts no longer.
        """
        passed_ns = 1e9 * (time.monotonic() - mark.at_s)
        since = {name: _since(times, mark.threads.get(name)) for name, times in self._threads().items()}
        working = [
            times for name, times in since.items() if name == self._main or times.ran_ns >= WORKING_SHARE * passed_ns
        ]
        waited_ns = sum(times.waited_ns for times in working)
        return waited_ns / passed_ns if passed_ns > 0 else 0.0

    def _threads(self) -> dict[str, ThreadTimes]:
        try:
            threads = [task.name for task in self._tasks.iterdir()]
        except OSError:
            return {}
        return {thread: _times(self._tasks / thread / "schedstat") for thread in threads}


def _since(now: ThreadTimes, then: ThreadTimes | None) -> ThreadTimes:
    return now if then is None else ThreadTimes(now.ran_ns - then.ran_ns, max(0, now.waited_ns - then.waited_ns))


def _times(path: Path) -> ThreadTimes:
    """The first two fields; zeros for a thread that has just ended, or a kernel that counts nothing."""
    try:
        fields = path.read_text().split()
    except OSError:
        return ThreadTimes(0, 0)
    return ThreadTimes(int(fields[0]), int(fields[1])) if len(fields) >= 3 else ThreadTimes(0, 0)
