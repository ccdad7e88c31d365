"""Values of options read from text; each function says what it accepts."""

import difflib
import math
import re
from collections.abc import Callable, Sequence

import click

from stagecut.planner.core.job import AUTO, SliceChoice
from stagecut.planner.io.documents.complaints import shorten
from stagecut.planner.io.documents.fields import MAX_NUMBER, is_name

MAX_COUNT = 1_000_000_000
MAX_LISTED = 1000
"""As in a job file, which is part of a plan file."""
SMALLEST_SCALE = 1e-9
"""Of time; the largest one is its inverse."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kKMGT])(i?))?B")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers with commas and ranges between, `1,2,4` or `1-4`: in ascending order, each once."""
    ranges = [_range(part.strip()) for part in text.split(",")]
    if sum(map(len, ranges)) > MAX_LISTED:
        raise click.BadParameter(f"{text!r} lists more than {MAX_LISTED} numbers")
    return tuple(sorted({number for numbers in ranges for number in numbers}))


def counts_or_auto(text: str) -> tuple[int, ...]:
    """As :func:`counts`; empty for the word `auto`."""
    return () if text.strip() == "auto" else counts(text)


def slices(text: str) -> SliceChoice:
    """A number of micro-batches, `auto`, or `never` for 0."""
    word = text.strip()
    if word == AUTO:
        return AUTO
    if word != "never" and not (word.isascii() and word.isdigit() and int(word) <= MAX_COUNT):
        raise click.BadParameter(f"{text!r} is no number of micro-batches; write auto, never or a number such as 2")
    return 0 if word == "never" else int(word)


def words_of(choices: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """A reader of words with commas between, each one of the choices, or the word `all`."""

    def words(text: str) -> tuple[str, ...]:
        if text.strip() == "all":
            return tuple(choices)
        found = [word.strip() for word in text.split(",")]
        for word in found:
            if word not in choices:
                raise click.BadParameter(f"{word!r} is not one of {', '.join(choices)}{_nearest(word, choices)}")
        return tuple(dict.fromkeys(found))

    return words


def share(text: str) -> float:
    """A share as a number or in percent: `0.005` or `0.5%`."""
    number = _number(text.strip().removesuffix("%"))
    if number is None:
        raise click.BadParameter(f"{text!r} is no share; write 0.005 or 0.5%")
    return number / 100 if text.strip().endswith("%") else number


def name(text: str) -> str:
    """What something may be called in a file."""
    if not is_name(text):
        raise click.BadParameter(f"{shorten(text)} is no name; write 1 to 100 printable characters")
    return text


def time_limit(text: str) -> float:
    """Seconds; infinite for `none` and 0."""
    number = math.inf if text.strip() == "none" else _number(text)
    if number is None:
        raise click.BadParameter(f"{text!r} is no number of seconds; write 60, or none for no limit")
    return math.inf if number == 0 or number > MAX_NUMBER else number


def time_scale(text: str) -> float | None:
    """A positive factor; None for `auto`."""
    number = _number(text)
    if text.strip() == AUTO:
        return None
    if number is None or not SMALLEST_SCALE <= number <= 1 / SMALLEST_SCALE:
        raise click.BadParameter(f"{text!r} is no factor from {SMALLEST_SCALE:g} to {1 / SMALLEST_SCALE:g}, nor auto")
    return number


def memory_size(text: str) -> float:
    """Bytes with a unit, `4GiB` or `512MB`; infinite for `none`."""
    if text.strip() == "none":
        return math.inf
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is no size; write 4GiB or 512MB, or none for no limit")
    size = float(match[1]) * (1024.0 if match[3] else 1000.0) ** _POWERS[match[2] or ""]
    return size if size <= MAX_NUMBER else math.inf


def _range(part: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise click.BadParameter(f"{part!r} is no whole number; write 1,2,4 or 1-4")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise click.BadParameter(f"{part!r} ends before it begins; write {last}-{first}")
    return range(first, last + 1)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _nearest(word: str, choices: Sequence[str]) -> str:
    found = difflib.get_close_matches(word, choices, n=1)
    return f"; did you mean {found[0]!r}?" if found else ""
