"""Option values read from text; each function says what it accepts."""

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import click

from stagecut.planner.core.job import AUTO, Number, SliceChoice
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.sublot_sizes import divisors, powers_of_two
from stagecut.planner.io.documents.complaints import nearest, shorten
from stagecut.planner.io.documents.fields import MAX_COUNT, MAX_NUMBER, is_name

Word = TypeVar("Word", bound=str)

COUNT = click.IntRange(1, MAX_COUNT)
MAX_LISTED = 1000
"""The limit of a job file, which is part of every plan file."""
MAX_LAYERS = 100_000
SMALLEST_SCALE = 1e-9
"""Smallest time scale; the largest one is its inverse."""
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?(?:([kKMGT])(i?))?B")
_POWERS = {"": 0, "k": 1, "K": 1, "M": 2, "G": 3, "T": 4}
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def counts(text: str) -> tuple[int, ...]:
    """Whole numbers and ranges separated by commas, `1,2,4` or `1-4`: in ascending order, each once."""
    ranges = [_range(part.strip()) for part in text.split(",")]
    if sum(map(len, ranges)) > MAX_LISTED:
        raise click.BadParameter(f"{text!r} lists more than {MAX_LISTED} numbers")
    return tuple(sorted({number for numbers in ranges for number in numbers}))


def numbers(text: str) -> tuple[int, ...]:
    """Whole numbers separated by commas, in the order given."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > MAX_LISTED:
        raise click.BadParameter(f"{shorten(text)} lists more than {MAX_LISTED} numbers")
    for part in parts:
        if not re.fullmatch(r"[0-9]{1,9}", part):
            raise click.BadParameter(f"{part!r} is not a whole number; write 4 or 0,8,16,24")
    return tuple(map(int, parts))


def layer_counts(text: str) -> tuple[int, ...]:
    """Numbers of layers of each kind, `32` or `24,24`."""
    found = numbers(text)
    if min(found) < 1 or sum(found) > MAX_LAYERS:
        raise click.BadParameter(f"{shorten(text)}: numbers of layers are from 1 to {MAX_LAYERS:,}, all together")
    return found


def counts_or_auto(text: str) -> tuple[int, ...]:
    """Like :func:`counts`; empty for the word `auto`."""
    return () if text.strip() == "auto" else counts(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatches:
    """Allowed micro-batch sizes, and whether every process may choose its own."""

    sizes: tuple[int, ...] = ()
    """In samples; empty where they depend on the global batch."""
    unequal: bool = False
    word: str = "powers"
    """Which sizes there are without a list: powers (of two), divisors or all."""

    def of(self, global_batch: int) -> tuple[int, ...]:
        """The sizes for a global batch."""
        return self.sizes or _SIZES[self.word](global_batch)


_SIZES: dict[str, Callable[[int], tuple[int, ...]]] = {
    "powers": powers_of_two,
    "divisors": divisors,
    "all": lambda num_samples: tuple(range(1, num_samples + 1)),
}


def micro_batches(text: str) -> MicroBatches:
    """Sizes like :func:`counts`; or `unequal`, `unequal:1,2,4`, `unequal:divisors`, `unequal:all`."""
    word, _, sizes = text.strip().partition(":")
    if word != "unequal":
        return MicroBatches(sizes=counts(text))
    if not sizes or sizes in _SIZES:
        return MicroBatches(unequal=True, word=sizes or "powers")
    return MicroBatches(unequal=True, sizes=counts(sizes))


def number_or_auto(text: str) -> Number:
    """A whole number, or `auto`; its range is checked with the rest of the job."""
    word = text.strip()
    if word == AUTO:
        return AUTO
    if not re.fullmatch(r"-?[0-9]{1,9}", word):
        raise click.BadParameter(f"{text!r} is not a whole number; write auto or a number such as 4")
    return int(word)


def slices(text: str) -> SliceChoice:
    """A number of micro-batches, `auto`, or `never` for 0."""
    word = text.strip()
    if word == AUTO:
        return AUTO
    if word != "never" and not (word.isascii() and word.isdigit() and int(word) <= MAX_COUNT):
        raise click.BadParameter(f"{text!r} is not a number of micro-batches; write auto, never or a number such as 2")
    return 0 if word == "never" else int(word)


def words_of(choices: Iterable[Word], *, others: tuple[str, ...] = ()) -> Callable[[str], tuple[Word, ...]]:
    """A reader of comma-separated words, each one of the choices, or the word `all`; `others` can be given instead."""
    known = {str(choice): choice for choice in choices}

    def words(text: str) -> tuple[Word, ...]:
        if text.strip() == "all":
            return tuple(known.values())
        found = [word.strip() for word in text.split(",")]
        for word in found:
            if word not in known:
                raise click.BadParameter(f"{word!r} is not one of {', '.join((*others, *known))}{nearest(word, known)}")
        return tuple(dict.fromkeys(known[word] for word in found))

    return words


def shardings(text: str) -> tuple[Parallelism, ...]:
    """Kinds of parallelism separated by commas, or `auto` for all; empty for the word `none`."""
    word = text.strip()
    kinds = words_of(Parallelism, others=("none", AUTO))
    return () if word == "none" else kinds("all" if word == AUTO else text)


def fraction(text: str) -> float:
    """A fraction as a number or in percent: `0.005` or `0.5%`."""
    number = _number(text.strip().removesuffix("%"))
    if number is None:
        raise click.BadParameter(f"{text!r} is not a fraction; write 0.005 or 0.5%")
    return number / 100 if text.strip().endswith("%") else number


def prices(text: str) -> dict[str, float]:
    """Prices by name, `a100=1.5,v100=0.6`."""
    found: dict[str, float] = {}
    for part in text.split(","):
        name, _, price = (word.strip() for word in part.rpartition("="))
        number = _number(price)
        if not name or number is None or not 0 <= number <= MAX_NUMBER:
            raise click.BadParameter(f"{part.strip()!r} is not a price; write NAME=PRICE, such as a100=1.5")
        if name in found:
            raise click.BadParameter(f"{name!r} has two prices")
        found[name] = number
    return found


def plain_name(text: str) -> str:
    """A name as files may contain it."""
    if not is_name(text):
        raise click.BadParameter(f"{shorten(text)} is not a valid name; write 1 to 100 printable characters")
    return text


def time_limit(text: str) -> float | None:
    """Seconds; None, meaning no limit, for `none` and 0."""
    number = math.inf if text.strip() == "none" else _number(text)
    if number is None:
        raise click.BadParameter(f"{text!r} is not a number of seconds; write 60, or none for no limit")
    return None if number == 0 or number > MAX_NUMBER else number


def time_scale(text: str) -> float | None:
    """A positive factor; None for `auto`."""
    number = _number(text)
    if text.strip() == AUTO:
        return None
    if number is None or not SMALLEST_SCALE <= number <= 1 / SMALLEST_SCALE:
        limits = f"from {SMALLEST_SCALE:g} to {1 / SMALLEST_SCALE:g}"
        raise click.BadParameter(f"{text!r} is neither auto nor a factor {limits}")
    return number


def memory_size(text: str) -> float | None:
    """Bytes with a unit, `4GiB` or `512MB`; None, meaning no limit, for `none`."""
    if text.strip() == "none":
        return None
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise click.BadParameter(f"{text!r} is not a size; write 4GiB or 512MB, or none for no limit")
    size = float(match[1]) * (1024.0 if match[3] else 1000.0) ** _POWERS[match[2] or ""]
    return size if size <= MAX_NUMBER else None


def shape(text: str) -> tuple[int, ...]:
    """Sizes separated by commas: `3,32,32`."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 0 < int(part) <= MAX_COUNT for part in parts):
        raise click.BadParameter(f"{text!r} is not a shape; write 3,32,32")
    return tuple(map(int, parts))


def grid(text: str) -> tuple[int, ...]:
    """Sizes of the axes of a mesh: `2x4`."""
    parts = text.strip().split("x")
    if not all(part.isdecimal() and 0 < int(part) <= MAX_COUNT for part in parts):
        raise click.BadParameter(f"{text!r} is not a mesh; write 8 or 2x4")
    return tuple(map(int, parts))


def layer_range(text: str) -> tuple[int, int]:
    """First layer and one past the last, of `3-7` or `3`."""
    first, _, last = text.partition("-")
    last = last or first
    if not (first.isdecimal() and last.isdecimal()) or int(last) < int(first):
        raise click.BadParameter(f"{text!r} is not a range of layers; write 3-7, counting from 0")
    return int(first), int(last) + 1


def _range(part: str) -> range:
    match = _RANGE.fullmatch(part)
    if match is None:
        raise click.BadParameter(f"{part!r} is not a whole number; write 1,2,4 or 1-4")
    first, last = int(match[1]), int(match[2] or match[1])
    if first > last:
        raise click.BadParameter(f"{part!r} ends before it begins; write {last}-{first}")
    return range(first, last + 1)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
