"""Every fault of a file, each with its line and its place in the tree."""

import re
from collections.abc import Callable, Iterable
from typing import NoReturn, TypeVar

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.messages.names import closest

E = TypeVar("E")
T = TypeVar("T")
PathStep = str | int
"""A key of a mapping or an index into a list."""
Where = tuple[PathStep, ...]

MAX_SHOWN = 50
_PLAIN_KEY = re.compile(r"[\w-]{1,60}")


class Complaints:
    """Faults found so far in one file.

    Each place is reported once: a fault at, above or below an earlier one is taken for its consequence
    and dropped.
    """

    def __init__(self, file: str) -> None:
        self.file = file
        self._faults: list[tuple[int, str]] = []
        self._places: set[Where] = set()
        self._above: set[Where] = set()

    def add(self, line: int, where: Where, message: str) -> None:
        """Record a fault, unless there already is one at, above or below that place."""
        prefixes = [where[:depth] for depth in range(len(where) + 1)]
        if where in self._above or any(prefix in self._places for prefix in prefixes):
            return
        self._places.add(where)
        self._above.update(prefixes)
        place = f"{format_where(where)}: " if where else ""
        self._faults.append((line, f"{self.file}:{line}: {place}{message}"))

    def stop(self, line: int, message: str) -> NoReturn:
        """Raise a BadInputError with everything found so far and this fault, after which reading cannot continue."""
        self._faults.append((line, f"{self.file}:{line}: {message}"))
        raise self._error()

    def checked(self, entry: E | None) -> E:
        """Return the entry, or raise a BadInputError with all faults found, sorted by line."""
        if self._faults:
            raise self._error()
        assert entry is not None, "an entry is missing without a complaint"
        return entry

    def finish(self, entry: E | None, build: Callable[[E], T]) -> T:
        """Build the core data of a faultless entry; otherwise raise a BadInputError with all faults.

        Errors of the core data's own checks are prefixed with the file name.
        """
        faultless = self.checked(entry)
        try:
            return build(faultless)
        except BadInputError as error:
            raise BadInputError(*(f"{self.file}: {complaint}" for complaint in error.complaints)) from None

    def _error(self) -> BadInputError:
        lines = [message for _, message in sorted(self._faults, key=lambda fault: fault[0])]
        more = len(lines) - MAX_SHOWN
        return BadInputError(*lines[:MAX_SHOWN], *([f"{self.file}: and {more} more faults"] if more > 0 else []))


def format_where(where: Where) -> str:
    """A place in the tree in the usual notation, for example `layers[3].forward_s.V100`."""
    text = ""
    for step in where:
        if isinstance(step, str) and _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f"[{shorten(step)}]"
    return text


def shorten(value: object) -> str:
    """The value's repr on one line, truncated if it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:56]}...{text[-1]}"


def nearest(name: str, known: Iterable[str]) -> str:
    """`, did you mean 'x'?` for the closest known names, or an empty string."""
    found = closest(name, known)
    return f", did you mean {found}?" if found else ""
