"""JSON text that arrives in pieces, so that a file of any size is read within the memory of its tables."""

import gzip
import json
import re
import zlib
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NoReturn, cast

import numpy as np

from stagecut.planner.choice_graphs.scanning import DONE, FAULT, NUM_NUMBERS, NUM_ROWS, STATE, scan
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.io.documents.input_file import open_input, unreadable

PIECE_BYTES = 1 << 22
GROWTH = 8
"""Tables grow by this part: little is ever unused, and the system moves pages instead of copying them."""
_GZIP = b"\x1f\x8b"
_SHOWN = 24
_PUNCTUATION = b" \t\r\n,:[]{}"


class Text:
    """The text of a file, plain or gzipped, consumed token by token.

    Parameters
    ----------
    path
        Names the file in messages too.
    piece_bytes
        How much is held at a time.

    Raises
    ------
    BadInputError
        From every method: the file cannot be read, ends early, or holds something else than was asked for.
    """

    def __init__(self, path: Path, *, piece_bytes: int = PIECE_BYTES) -> None:
        self._path, self._piece_bytes = path, piece_bytes
        self._piece, self._at, self._lines_before = b"", 0, 0
        self._closing = ExitStack()

    def __enter__(self) -> "Text":
        plain = self._closing.enter_context(open_input(self._path))
        try:
            zipped = plain.peek(len(_GZIP))[: len(_GZIP)] == _GZIP
        except OSError as fault:
            self._closing.close()
            raise unreadable(self._path, fault) from None
        self._file: BinaryIO = plain
        if zipped:
            self._file = cast(BinaryIO, self._closing.enter_context(gzip.GzipFile(fileobj=plain)))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()

    def refuse(self, place: str, what: str) -> NoReturn:
        """Raise with the file, the line and a place in the document."""
        line = 1 + self._lines_before + self._piece.count(b"\n", 0, self._at)
        raise BadInputError(f"{self._path}:{line}: {place}: {what}" if place else f"{self._path}:{line}: {what}")

    def next_is(self, mark: str) -> bool:
        """Skip white space; consume a punctuation mark if it is next."""
        if self._next() != mark:
            return False
        self._at += 1
        return True

    def require(self, mark: str, place: str) -> None:
        """Consume a punctuation mark that must be next."""
        if not self.next_is(mark):
            self.refuse(place, f"got {self._shown()}, where {mark!r} is needed")

    def string(self, place: str) -> str:
        """Consume a string."""
        token = self._token(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
        try:
            return str(json.loads(token)) if token else self.refuse(place, f"got {self._shown()}, a string is needed")
        except ValueError as fault:
            self.refuse(place, f"not a valid string: {fault}")

    def whole_number(self, place: str) -> int:
        """Consume a whole number."""
        token = self._token(r"-?(?:0|[1-9][0-9]*)(?![0-9.eE])")
        return int(token) if token else self.refuse(place, f"got {self._shown()}, a whole number is needed")

    def end(self) -> None:
        """Require that nothing follows but white space."""
        if self._peek():
            self.refuse("", f"got {self._shown()} behind the end of the document")

    def table(self, place: str) -> tuple[Ints, Ints]:
        """Consume a list of lists of whole numbers; return where each row begins (rows + 1,), and all numbers."""
        self._next()
        memory = np.zeros(5, dtype=np.int64)
        numbers, ends = np.empty(1024, dtype=np.int64), np.zeros(1024, dtype=np.int64)
        while memory[STATE] != DONE:
            if self._at == len(self._piece) and not self._refill():
                self._refuse_end(_cell(place, memory, ends))
            self._at = scan(np.frombuffer(self._piece, dtype=np.uint8), self._at, memory, numbers, ends[1:])
            if memory[STATE] == FAULT:
                self.refuse(_cell(place, memory, ends), f"got {self._shown()} in a list of lists of whole numbers")
            _grow_if_full(numbers, int(memory[NUM_NUMBERS]))
            _grow_if_full(ends, int(memory[NUM_ROWS]) + 1)
        numbers.resize(int(memory[NUM_NUMBERS]), refcheck=False)
        ends.resize(int(memory[NUM_ROWS]) + 1, refcheck=False)
        return ends, numbers

    def _next(self) -> str:
        """The next character that is no white space."""
        return self._peek() or self._refuse_end("")

    def _peek(self) -> str:
        """The same; empty at the end of the file."""
        while True:
            blanks = re.compile(rb"[ \t\r\n]*").match(self._piece, self._at)
            self._at = blanks.end() if blanks else self._at
            if self._at < len(self._piece):
                return chr(self._piece[self._at])
            if not self._refill():
                return ""

    def _token(self, pattern: str) -> str:
        """Consume what matches the pattern; empty if the text does not."""
        self._next()
        self._refill()
        found = re.compile(pattern.encode()).match(self._piece, self._at)
        if found is None:
            return ""
        self._at = found.end()
        return found[0].decode(errors="replace")

    def _shown(self) -> str:
        """What is at the position, short enough for a message."""
        self._refill()
        start = self._at
        while start > 0 and start > self._at - _SHOWN and self._piece[start - 1] not in _PUNCTUATION:
            start -= 1
        token = re.compile(rb"[^ \t\r\n,:\[\]{}]+|.", re.DOTALL).match(self._piece, start)
        shown = token[0].decode(errors="replace") if token else "the end of the file"
        return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."

    def _refill(self) -> bool:
        """Add the next piece to what is left, of which a little is kept to be shown; whether there was more."""
        try:
            more = self._file.read(self._piece_bytes)
        except (EOFError, zlib.error, OSError) as fault:
            self.refuse("", f"cannot be read on, the file is cut short or damaged: {fault}")
        if more:
            rest = max(0, self._at - _SHOWN)
            self._lines_before += self._piece.count(b"\n", 0, rest)
            self._piece, self._at = self._piece[rest:] + more, self._at - rest
        return bool(more)

    def _refuse_end(self, place: str) -> NoReturn:
        self.refuse(place, "the file ends here, in the middle of the document")


def _grow_if_full(table: Ints, used: int) -> None:
    if used == len(table):
        table.resize(used + used // GROWTH + 1, refcheck=False)


def _cell(place: str, memory: Ints, ends: Ints) -> str:
    """Where in a table the scanner stands, as in costs[17][3]."""
    row = int(memory[NUM_ROWS])
    return f"{place}[{row}][{int(memory[NUM_NUMBERS] - ends[row])}]"
