"""stdout that tells of every answer it does not take, and stderr that never gets in the way."""

import errno
import io
import os
import select
import sys
from typing import TextIO

from stagecut.planner.core.errors import OutputError


class ClosedPipeError(OutputError):
    """Nobody reads the answer to its end, which needs no words: `plan clusters | head -1`."""

    exit_code = 141
    """As of a program that SIGPIPE ends."""


def open_streams() -> None:
    """Put streams of our own in the places of stdout and stderr; to be called before anything writes to them."""
    _occupy(0, os.O_RDONLY)
    _occupy(1, os.O_RDONLY)  # so that writing fails, and is told of
    _occupy(2, os.O_WRONLY)
    sys.stdout = _text(_Answer(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Notes(2, "wb", closefd=False), sys.stderr)


def _occupy(descriptor: int, mode: int) -> None:
    """Open a standard stream that is closed: the next file opened would be taken for it."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, mode), True)  # the lowest number that is free


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """The stream as text, in the encoding of the one before it, which is None where it was closed."""
    encoding = "utf-8" if before is None else before.encoding
    is_live = raw.fileno() == 2 or raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=is_live
    )


class _Answer(io.FileIO):
    """Raises our own errors, so that no other fault of a file is mistaken for one of stdout."""

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write some of it."""
        try:
            while (count := super().write(content)) is None:  # somebody made it non-blocking
                select.select([], [self], [])
        except BrokenPipeError:
            raise ClosedPipeError from None
        except OSError as error:
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OutputError(f"stdout: cannot be written: {reason}") from None
        return count


class _Notes(io.FileIO):
    """Loses what it cannot write."""

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write some of it."""
        try:
            count = super().write(content)
        except OSError:
            count = None
        return len(content) if count is None else count
