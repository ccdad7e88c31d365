"""What fills the memory of each stage's devices, as a table."""

from collections.abc import Sequence
from dataclasses import astuple, fields

from rich.table import Table

from stagecut.planner.core.plan import Stage
from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.report.labels import bytes_label, device_label
from stagecut.planner.report.text_table import text_table

PARTS = tuple(field.name.removesuffix("_bytes") for field in fields(MemoryParts))


def memory_tables(
    stages: Sequence[Stage],
    parts: Sequence[MemoryParts],
    limits_bytes: Sequence[float],
    *,
    names: Sequence[str] = (),
) -> tuple[Table, Table]:
    """One row per stage: bytes on each device when it holds the most, part by part, and what the device has.

    The narrow one has nothing but the parts. Stages have their numbers as names unless others are given.
    """
    names = names or [str(index) for index in range(len(stages))]
    filled = [tuple(map(bytes_label, astuple(own))) for own in parts]
    whole = (
        (name, device_label(stage.devices), *cells, bytes_label(own.total_bytes), bytes_label(limit))
        for name, stage, own, cells, limit in zip(names, stages, parts, filled, limits_bytes, strict=True)
    )
    narrow = ((name, *cells) for name, cells in zip(names, filled, strict=True))
    return (
        text_table(whole, "stage", "devices", right=(*PARTS, "memory", "limit")),
        text_table(narrow, "stage", right=PARTS),
    )
