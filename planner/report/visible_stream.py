"""Streams to people, on which hidden characters are seen."""

import codecs
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from stagecut.planner.core.visible import visible_lines


class VisibleStream:
    """A text stream that writes escapes for what a terminal would obey or hide; else as the stream below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        """See :func:`planner.core.visible.visible_lines`."""
        self.below.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """One after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer" and codecs.lookup(self.below.encoding or "utf-8").name == "ascii":
            raise AttributeError(name)  # click would go this way round to write more than ASCII
        return getattr(self.below, name)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Write to stdout and stderr in this way while the context is open.

    What the encoding of stdout lacks is escaped as well: a name in a file may hold any character.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    before = sys.stdout, sys.stderr
    within = tuple(None if stream is None else cast(TextIO, VisibleStream(stream)) for stream in before)
    sys.stdout, sys.stderr = within
    try:
        yield
    finally:
        # Whoever put something else in their place meanwhile wants it to stay.
        if sys.stdout is within[0]:
            sys.stdout = before[0]
        if sys.stderr is within[1]:
            sys.stderr = before[1]


def drawn_on(stream: TextIO) -> TextIO:
    """The stream itself, for what moves the cursor or has colours; all text on it has to be visible already."""
    return stream.below if isinstance(stream, VisibleStream) else stream
