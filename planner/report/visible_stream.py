"""Text streams that make hidden characters visible."""

import codecs
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from stagecut.planner.core.messages.visible import visible_lines


class VisibleStream:
    """A text stream that escapes what a terminal would obey or hide; otherwise like the stream below."""

    def __init__(self, below: TextIO) -> None:
        self.below = below

    def write(self, text: str) -> int:
        """See :func:`stagecut.planner.core.messages.visible.visible_lines`."""
        self.below.write(visible_lines(text))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write lines one after another."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name == "buffer" and codecs.lookup(self.below.encoding or "utf-8").name == "ascii":
            raise AttributeError(name)  # click would bypass this stream to write more than ASCII
        return getattr(self.below, name)


@contextmanager
def visible_streams() -> Iterator[None]:
    """Make hidden characters visible on stdout and stderr while the context is open.

    Characters that the encoding of stdout lacks are escaped too: a name in a file may hold any character.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    before = sys.stdout, sys.stderr
    within = tuple(None if stream is None else cast(TextIO, VisibleStream(stream)) for stream in before)
    sys.stdout, sys.stderr = within
    try:
        yield
    finally:
        # a stream that somebody else put in place meanwhile stays
        if sys.stdout is within[0]:
            sys.stdout = before[0]
        if sys.stderr is within[1]:
            sys.stderr = before[1]


def drawn_on(stream: TextIO) -> TextIO:
    """The stream below, for output with colours or cursor movements, whose text must be visible already."""
    return stream.below if isinstance(stream, VisibleStream) else stream
