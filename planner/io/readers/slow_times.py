"""Measured times that look as if their unit were wrong."""

from collections.abc import Container

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.units import format_seconds

LONGEST_PASS_S = 20.0
"""If forward and backward of the smallest micro-batch take longer on one device, the unit of time is probably wrong."""
MINUTES_S = 120.0
"""If an iteration takes longer, the same holds."""


def slow_times_note(model: ModelProfile, device_types: Container[str] | None = None) -> str:
    """Which of the device types (None: any) is suspiciously slow by its measured times; empty if none is."""
    totals: dict[str, tuple[int, float]] = {}
    for table in (table for layer in model.layers for table in layer.times if table.tensor_parallel == 1):
        if device_types is None or table.device_type in device_types:
            seconds = totals.get(table.device_type, (0, 0.0))[1] + table.forward_s[0] + table.backward_s[0]
            totals[table.device_type] = (table.samples[0], seconds)
    slowest = max(totals, key=lambda name: totals[name][1], default=None)
    if slowest is None or totals[slowest][1] < LONGEST_PASS_S:
        return ""
    samples, seconds = totals[slowest]
    what = "a sample" if samples == 1 else f"a micro-batch of {samples} samples"
    return f"{what} takes {format_seconds(seconds)} on {slowest!r}"
