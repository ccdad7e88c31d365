"""Links and tables of measured times in cluster files."""

from itertools import pairwise
from typing import Annotated

from pydantic import Field

from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import Entry, NonNegative, PositiveOrUnlimited, Text
from stagecut.planner.io.documents.tree import Node

Point = Annotated[list[NonNegative], Field(min_length=2, max_length=2)]
"""Bytes and seconds."""


class InterfaceEntry(Entry):
    """A network interface: seconds = latency_s + bytes / bandwidth_bytes_per_s."""

    bandwidth_bytes_per_s: PositiveOrUnlimited
    """Bytes per second in each direction, or the word unlimited."""
    latency_s: NonNegative = 0.0
    """Additional seconds per message."""
    source: Text = ""
    """Source of the figures."""


class LinkEntry(InterfaceEntry):
    """A link, given by bandwidth and latency or by measurements."""

    table: Annotated[list[Point], Field(min_length=1)] | None = None
    """Measured [bytes, seconds] of one message from end to end, in increasing order; overrides the figures."""


def check_order(table: Node, complaints: Complaints) -> None:
    """Complain about points whose bytes do not increase or whose seconds decrease."""
    for before, after in pairwise(table.items()):
        (last_bytes, last_s), (num_bytes, seconds) = _numbers(before), _numbers(after)
        if last_bytes is not None and num_bytes is not None and num_bytes <= last_bytes:
            complaints.add(after.line, after.where, f"bytes must increase, got {num_bytes:g} after {last_bytes:g}")
        elif last_s is not None and seconds is not None and seconds < last_s:
            complaints.add(after.line, after.where, f"seconds must not decrease, got {seconds:g} after {last_s:g}")


def _numbers(point: Node) -> tuple[float | None, float | None]:
    """Bytes and seconds of a point, None for what is not a number."""
    nodes = point.at(0), point.at(1)
    first, second = (node.value if node is not None and isinstance(node.value, int | float) else None for node in nodes)
    return first, second
