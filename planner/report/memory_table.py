"""What fills the memory of each stage's devices, as a table."""

from collections.abc import Sequence
from dataclasses import astuple, fields

from rich.table import Table

from stagecut.planner.core.plan import Plan
from stagecut.planner.cost.memory_parts import MemoryParts
from stagecut.planner.report.labels import bytes_label, device_label
from stagecut.planner.report.text_table import text_table


def memory_table(plan: Plan, parts: Sequence[MemoryParts], limits_bytes: Sequence[float]) -> Table:
    """One row per stage: bytes on each device when it holds the most, part by part, and what the device has."""
    rows = (
        (str(index), device_label(stage.devices), *map(bytes_label, (*astuple(own), own.total_bytes, limit)))
        for index, (stage, own, limit) in enumerate(zip(plan.stages, parts, limits_bytes, strict=True))
    )
    names = (field.name.removesuffix("_bytes") for field in fields(MemoryParts))
    return text_table(rows, "stage", "devices", right=(*names, "memory", "limit"))
