"""A stdout that reports every answer it cannot take, and a stderr that never gets in the way."""

import errno
import io
import os
import select
import sys
from typing import TextIO

from stagecut.planner.core.messages.errors import OutputError


class ClosedPipeError(OutputError):
    """Nobody reads the answer to its end, which is nothing to report: `plan clusters | head -1`."""

    exit_code = 141
    """Exit code of a program that SIGPIPE ends."""


def open_streams() -> None:
    """Replace stdout and stderr by streams of our own; call this before anything writes to them."""
    _occupy(0, os.O_RDONLY)
    _occupy(1, os.O_RDONLY)  # so that writing fails and is reported
    _occupy(2, os.O_WRONLY)
    sys.stdout = _text(_Answer(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Notes(2, "wb", closefd=False), sys.stderr)


def _occupy(descriptor: int, mode: int) -> None:
    """Open a standard stream that is closed: the next file opened would take its place."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, mode), True)  # takes the lowest free number


def _text(raw: io.FileIO, before: TextIO | None) -> TextIO:
    """The stream as text, in the encoding of the one it replaces, which is None where it was closed."""
    encoding = "utf-8" if before is None else before.encoding
    is_live = raw.fileno() == 2 or raw.isatty()
    return io.TextIOWrapper(
        io.BufferedWriter(raw), encoding=encoding, errors="backslashreplace", line_buffering=is_live
    )


class _Answer(io.FileIO):
    """Raises our own errors, so that a fault of another file is never mistaken for one of stdout."""

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write part of the content; return how much."""
        try:
            while (count := super().write(content)) is None:  # somebody made stdout non-blocking
                select.select([], [self], [])
        except BrokenPipeError:
            raise ClosedPipeError from None
        except OSError as error:
            reason = "it is closed" if error.errno == errno.EBADF else error.strerror
            raise OutputError(f"stdout: cannot be written: {reason}") from None
        return count


class _Notes(io.FileIO):
    """Drops what it cannot write."""

    def write(self, content: "bytes | bytearray | memoryview") -> int:  # type: ignore[override]
        """Write part of the content; return how much."""
        try:
            count = super().write(content)
        except OSError:
            count = None
        return len(content) if count is None else count
