"""Charts of horizontal bars, and of a search, as plain values."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from math import isfinite

from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.report.page.timeline_data import Data

Value = float | None
"""None, like what is infinite, is not drawn."""
SHARE, SECONDS, BYTES, RATE = "share", "seconds", "bytes", "rate"
"""Units, as `FORMATS` of drawing.js names them."""
PART_COLOURS = ("deep", "blue", "green", "orange", "pink")
"""Of :class:`MemoryParts`, field by field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A bar in each row."""

    name: str
    values: Iterable[Value]
    colour: str = ""
    """As `COLOURS` of drawing.js names it."""
    hatched: bool = False


def bars(
    names: Sequence[str],
    *series: Series,
    unit: str,
    axis: str,
    short_names: Sequence[str] = (),
    marks: Series | None = None,
    stacked: bool = False,
    maximum: float | None = None,
) -> Data:
    """A row for each name; `marks` are drawn as lines across the rows, such as limits."""
    return {
        "names": names,
        "short_names": short_names or names,
        "series": [asdict(each) | {"values": known(each.values)} for each in series],
        "marks": None if marks is None else {"name": marks.name, "values": known(marks.values)},
        "unit": unit,
        "axis": axis,
        "stacked": stacked,
        "maximum": maximum,
    }


def memory_bars(
    names: Sequence[str], short_names: Sequence[str], parts: Sequence[MemoryParts], limits_bytes: Sequence[Value]
) -> Data:
    """What fills the memory of each row, against its limit."""
    series = (
        Series(
            name=field.name.removesuffix("_bytes"),
            values=[getattr(own, field.name) for own in parts],
            colour=colour,
            hatched=colour == "orange",
        )
        for field, colour in zip(fields(MemoryParts), PART_COLOURS, strict=True)
    )
    return bars(
        names,
        *series,
        unit=BYTES,
        axis="on each device, when it holds the most",
        short_names=short_names,
        marks=Series(name="limit", values=limits_bytes),
        stacked=True,
    )


def share_bars(names: Sequence[str], shares: Sequence[float], *, axis: str) -> Data:
    """Shares of which none exceeds 1."""
    used = Series(name="in use", values=shares, colour="deep")
    return bars(names, used, unit=SHARE, axis=axis, maximum=1)


def search_data(points: Iterable[tuple[float, Value, Value]], *, best: str, bound: str, unit: str) -> Data:
    """Best value and bound as steps over the seconds of a search, with their names."""
    seconds, *values = zip(*points, strict=True)
    found, proven = map(known, values)
    return {"seconds": seconds, "best": found, "bound": proven, "names": [best, bound], "unit": unit}


def known(values: Iterable[Value]) -> list[Value]:
    """What can be drawn; None for the others."""
    return [value if value is not None and isfinite(value) else None for value in values]
