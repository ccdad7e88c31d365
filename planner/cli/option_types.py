"""Kinds of option values, each with what it accepts."""

import difflib
import math
import re
from collections.abc import Sequence

import click

MAX_COUNT = 1_000_000_000
MAX_LISTED = 10_000
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


class Counts(click.ParamType):
    """Whole numbers with commas and ranges between: `1,2,4` or `1-4`."""

    name = "counts"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...] | None:
        """The numbers in ascending order, each once."""
        if not isinstance(value, str):
            return value if value is None or isinstance(value, tuple) else (int(str(value)),)
        ranges = [self._range(part.strip(), param, ctx) for part in value.split(",")]
        if sum(map(len, ranges)) > MAX_LISTED:
            self.fail(f"{value!r} lists more than {MAX_LISTED} numbers", param, ctx)
        return tuple(sorted({number for numbers in ranges for number in numbers}))

    def _range(self, part: str, param: click.Parameter | None, ctx: click.Context | None) -> range:
        match = _RANGE.fullmatch(part)
        if match is None:
            self.fail(f"{part!r} is no whole number; write 1,2,4 or 1-4", param, ctx)
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last:
            self.fail(f"{part!r} ends before it begins; write {last}-{first}", param, ctx)
        return range(first, last + 1)


class CountsOrAuto(Counts):
    """As :class:`Counts`, or the word `auto` for no choice: an empty tuple."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, ...] | None:
        """The numbers; none for `auto`."""
        return () if value == "auto" else super().convert(value, param, ctx)


class Choices(click.ParamType):
    """Words with commas between, from a list; `all` where `all_word` says so."""

    name = "words"

    def __init__(self, choices: Sequence[str], *, all_word: bool = False) -> None:
        self._choices = tuple(choices)
        self._all_word = all_word

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...] | None:
        """The words in the order given, each once."""
        if not isinstance(value, str):
            return value if value is None or isinstance(value, tuple) else (str(value),)
        if self._all_word and value == "all":
            return self._choices
        words = [word.strip() for word in value.split(",")]
        for word in words:
            if word not in self._choices:
                nearest = difflib.get_close_matches(word, self._choices, n=1)
                hint = f"; did you mean {nearest[0]!r}?" if nearest else ""
                self.fail(f"{word!r} is not one of {', '.join(self._choices)}{hint}", param, ctx)
        return tuple(dict.fromkeys(words))


class Share(click.ParamType):
    """A share as a number or in percent: `0.005` or `0.5%`."""

    name = "share"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The share as a number."""
        text = str(value).strip()
        number = _number(text.removesuffix("%"))
        if number is None:
            self.fail(f"{text!r} is no share; write 0.005 or 0.5%", param, ctx)
        return number / 100 if text.endswith("%") else number


class TimeLimit(click.ParamType):
    """Seconds; infinite for `none` and 0."""

    name = "seconds"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """The limit in seconds."""
        text = str(value).strip()
        number = math.inf if text == "none" else _number(text)
        if number is None:
            self.fail(f"{text!r} is no number of seconds; write 60, or none for no limit", param, ctx)
        return number or math.inf


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
