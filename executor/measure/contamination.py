"""Time that this process was ready to run but had no processor: others were at work meanwhile.

Linux counts for every thread, in `/proc/self/task/*/schedstat`, the nanoseconds it ran, the nanoseconds it
waited in the run queue, and its time slices (kernel documentation, scheduler/sched-stats).
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

TASKS = Path("/proc/self/task")
CLEAN_SHARE = 0.02
"""What took longer in the run queue than this share of its time is contaminated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueMark:
    """A moment, and how long every thread had waited until then."""

    at_s: float
    waited_ns: Mapping[str, int]
    """By thread."""


class RunQueue:
    """The run-queue delay of all threads of this process.

    Parameters
    ----------
    tasks
        Folder with one folder for each thread.
    """

    def __init__(self, tasks: Path = TASKS) -> None:
        self._tasks = tasks

    def mark(self) -> QueueMark:
        """Remember now."""
        return QueueMark(waited_ns=self._waited_ns(), at_s=time.monotonic())

    def share_since(self, mark: QueueMark) -> float:
        """Seconds that threads waited since the mark over the seconds that passed; 0 where the system counts none.

        Threads add up: the work of one mostly waits for the others. A thread that is gone counts no longer.
        """
        passed_s = time.monotonic() - mark.at_s
        waited_ns = sum(max(0, waited - mark.waited_ns.get(thread, 0)) for thread, waited in self._waited_ns().items())
        return waited_ns / 1e9 / passed_s if passed_s > 0 else 0.0

    def _waited_ns(self) -> dict[str, int]:
        try:
            threads = [task.name for task in self._tasks.iterdir()]
        except OSError:
            return {}
        return {thread: _waited_ns(self._tasks / thread / "schedstat") for thread in threads}


def _waited_ns(path: Path) -> int:
    """The second field; 0 for a thread that has just ended, or a kernel that counts nothing."""
    try:
        fields = path.read_text().split()
    except OSError:
        return 0
    return int(fields[1]) if len(fields) >= 3 else 0
