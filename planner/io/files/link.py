"""Links, and tables of measured times, as parts of files."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from stagecut.planner.core.cluster import UNLIMITED, Link
from stagecut.planner.core.curve import Points
from stagecut.planner.io.documents.canonical import Tree, TreeValue, number_or_unlimited
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import Entry, NonNegative, PositiveOrUnlimited, Text, limit_of
from stagecut.planner.io.documents.tree import Node

Point = Annotated[list[NonNegative], Field(min_length=2, max_length=2)]
"""Bytes and seconds."""


class InterfaceEntry(Entry):
    """A way for bytes: seconds = latency_s + bytes / bandwidth_bytes_per_s."""

    bandwidth_bytes_per_s: PositiveOrUnlimited
    """Bytes per second in each direction, or the word unlimited."""
    latency_s: NonNegative = 0.0
    """Seconds that every message takes on top."""
    source: Text = ""
    """Where the figures come from."""


class LinkEntry(InterfaceEntry):
    """A way for bytes, as measured or by the figures."""

    table: Annotated[list[Point], Field(min_length=1)] | None = None
    """Measured [bytes, seconds] of one message from one end to the other, in order; take the place of the figures."""


def check_order(table: Node, complaints: Complaints) -> None:
    """Complain of points whose bytes do not increase, or whose seconds fall."""
    for before, after in pairwise(table.items()):
        (last_bytes, last_s), (num_bytes, seconds) = _numbers(before), _numbers(after)
        if last_bytes is not None and num_bytes is not None and num_bytes <= last_bytes:
            complaints.add(after.line, after.where, f"bytes must increase, got {num_bytes:g} after {last_bytes:g}")
        elif last_s is not None and seconds is not None and seconds < last_s:
            complaints.add(after.line, after.where, f"seconds must not fall, got {seconds:g} after {last_s:g}")


def _numbers(point: Node) -> tuple[float | None, float | None]:
    """Bytes and seconds of a point, None where there is no number."""
    nodes = point.at(0), point.at(1)
    first, second = (node.value if node is not None and isinstance(node.value, int | float) else None for node in nodes)
    return first, second


def link_of(entry: InterfaceEntry | None) -> Link:
    """The core data of an entry; unlimited where there is none."""
    if entry is None:
        return UNLIMITED
    return Link(
        bandwidth_bytes_per_s=limit_of(entry.bandwidth_bytes_per_s),
        latency_s=entry.latency_s,
        source=entry.source,
        table=points_of(entry.table or ()) if isinstance(entry, LinkEntry) else (),
    )


def points_of(table: Sequence[Sequence[float]]) -> Points:
    """The core data of a table."""
    return tuple((num_bytes, seconds) for num_bytes, seconds in table)


def link_tree(link: Link) -> Tree:
    """A link as a file holds it."""
    tree: dict[str, TreeValue] = {
        "bandwidth_bytes_per_s": number_or_unlimited(link.bandwidth_bytes_per_s),
        "latency_s": float(link.latency_s),
    }
    if link.table:
        tree["table"] = table_tree(link.table)
    return {**tree, "source": link.source} if link.source else tree


def table_tree(points: Points) -> list[TreeValue]:
    """A table as a file holds it."""
    return [[float(num_bytes), float(seconds)] for num_bytes, seconds in points]
