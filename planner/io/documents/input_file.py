"""Input files, read so that reading always ends, even from a pipe that nobody writes to."""

import io
import os
import select
import stat
from pathlib import Path

from stagecut.planner.core.messages.errors import BadInputError

OPENING_S = 5.0
"""Seconds to wait for a pipe to get a writer."""
SILENCE_S = 10.0
"""Further seconds to wait for the writer's next bytes, which it may have to compute first."""
MAX_FILE_BYTES = 16_000_000
"""Larger inputs are rejected unread."""


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file; a byte order mark is skipped.

    Raises
    ------
    BadInputError
        If the file is missing, a folder, unreadable, a pipe that nobody writes to, too large, not UTF-8, or
        contains NUL characters.
    """
    content = _read_bytes(Path(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{path}:{line}: not UTF-8 text ({error.reason}); save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInputError(f"{path}:{line}: contains a NUL character; expected JSON or YAML text")
    return text


def _read_bytes(path: Path) -> bytes:
    with open_input(path) as file:
        try:
            too_large = os.fstat(file.fileno()).st_size > MAX_FILE_BYTES
            content = b"" if too_large else file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise unreadable(path, error) from None
    if too_large or len(content) > MAX_FILE_BYTES:
        raise BadInputError(f"{path}: larger than {MAX_FILE_BYTES / 1e6:.0f} MB, the limit for inputs")
    return content


def open_input(path: str | Path) -> io.BufferedReader:
    """Open a file, or a pipe, for reading.

    Raises a BadInputError if it is missing, a folder, or unreadable; while reading, also if nobody writes to a pipe.
    """
    try:
        if Path(path).is_dir():
            raise BadInputError(f"{path}: is a folder; expected a file")
        # Without O_NONBLOCK, opening a pipe would block until somebody opens its other end.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from None
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return io.BufferedReader(io.FileIO(descriptor, "rb"))
    return io.BufferedReader(_TimedReader(descriptor, str(path)))


def unreadable(path: str | Path, error: Exception) -> BadInputError:
    """The error for a file that cannot be opened or read."""
    if isinstance(error, FileNotFoundError):
        return BadInputError(f"{path}: no such file")
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return BadInputError(f"{path}: cannot be read: {reason}")


class _TimedReader(io.FileIO):
    """A pipe or device that is waited for only so long."""

    def __init__(self, descriptor: int, path: str) -> None:
        super().__init__(descriptor, "rb")
        self._path = path
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        """Read what is available, waiting for the first byte; 0 bytes at the end."""
        is_ready = self._poll.poll(OPENING_S * 1000)
        count = super().readinto(buffer)
        if count is None:  # a writer has the pipe open
            is_ready = self._poll.poll(SILENCE_S * 1000)
            count = super().readinto(buffer)
        if not is_ready or count is None:
            raise BadInputError(f"{self._path}: nothing writes to this pipe; name a file, or start its writer first")
        return count
