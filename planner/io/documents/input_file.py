"""Input files, opened such that reading ends: also of pipes that nobody writes to."""

import io
import os
import select
import stat
from pathlib import Path

from stagecut.planner.core.errors import BadInputError

OPENING_S = 5.0
"""How long a pipe may be without a writer."""
SILENCE_S = 10.0
"""How much longer a writer may take for its next bytes, which it may have to compute first."""


def open_input(path: str | Path) -> io.BufferedReader:
    """Open a file, or a pipe, for reading.

    Raises
    ------
    BadInputError
        If it is missing, a folder, or unreadable; also while it is read, where nobody writes to a pipe.
    """
    try:
        if Path(path).is_dir():
            raise BadInputError(f"{path}: is a folder; a file is wanted")
        # Without O_NONBLOCK a pipe would be waited for here until somebody opens its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return io.BufferedReader(io.FileIO(descriptor, "rb"))
    return io.BufferedReader(_Patient(descriptor, str(path)))


def unreadable(path: str | Path, error: Exception) -> BadInputError:
    """What to tell of a file that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return BadInputError(f"{path}: no such file")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return BadInputError(f"{path}: cannot be read: {reason}")


class _Patient(io.FileIO):
    """A pipe or device whose next bytes are waited for, but not without end."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "rb")
        self._path = path
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read what there is, once there is something; nothing at the end."""
        is_ready = self._poll.poll(OPENING_S * 1000)
        count = super().readinto(buffer)
        if count is None:  # a writer is there
            is_ready = self._poll.poll(SILENCE_S * 1000)
            count = super().readinto(buffer)
        if not is_ready or count is None:
            raise BadInputError(f"{self._path}: nothing writes to this pipe; name a file, or start its writer first")
        return count
