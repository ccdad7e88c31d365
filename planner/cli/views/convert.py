"""The profile that `plan convert` read, for people and as JSON."""

from pathlib import Path

import click

from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.units import format_bytes, format_seconds
from stagecut.planner.io.readers.conversion import Converted
from stagecut.planner.io.readers.formats import Format
from stagecut.planner.report.labels import count_label, counted_label
from stagecut.planner.report.summary import SCHEMA


def print_conversion(conversion: Converted, kind: Format) -> None:
    """A few lines for people."""
    profile = conversion.profile
    nodes = f"{conversion.num_nodes} {'layers of a profile' if kind is Format.PROFILE else f'nodes of {kind}'}"
    edges = f", {len(profile.skip_edges)} skip edges" if profile.skip_edges else ""
    click.echo(f"{profile.name}: {profile.num_layers} layers from {nodes}{edges}")
    inner = profile.boundary_bytes()[1:-1]
    line = f"{count_label(profile.num_params)} parameters in {profile.precision}"
    if len(inner):
        line += f", {format_bytes(inner.min())} to {format_bytes(inner.max())} per sample across a boundary"
    click.echo(line)
    for device_type, (samples, forward_s, backward_s) in _times(profile).items():
        times = f"{format_seconds(forward_s)} forward, {format_seconds(backward_s)} backward"
        click.echo(f"{device_type}: {times} for {counted_label(samples, 'sample')}")


def answer(conversion: Converted, kind: Format, *, output: Path) -> dict[str, object]:
    """The same as JSON."""
    profile = conversion.profile
    inner = profile.boundary_bytes()[1:-1].tolist()
    return {
        "schema": SCHEMA,
        "format": str(kind),
        "output": str(output),
        "name": profile.name,
        "precision": str(profile.precision),
        "num_nodes": conversion.num_nodes,
        "num_layers": profile.num_layers,
        "num_skip_edges": len(profile.skip_edges),
        "params_bytes": sum(layer.params_bytes for layer in profile.layers),
        "smallest_boundary_bytes": min(inner, default=0.0),
        "largest_boundary_bytes": max(inner, default=0.0),
        "device_types": [
            {"device_type": name, "samples": samples, "forward_s": forward_s, "backward_s": backward_s}
            for name, (samples, forward_s, backward_s) in _times(profile).items()
        ],
        "notes": list(conversion.notes),
    }


def _times(profile: ModelProfile) -> dict[str, tuple[int, float, float]]:
    """By device type: its smallest size, and forward and backward of the whole model on one device."""
    totals: dict[str, tuple[int, float, float]] = {}
    for table in (table for layer in profile.layers for table in layer.times if table.tensor_parallel == 1):
        _, forward_s, backward_s = totals.get(table.device_type, (0, 0.0, 0.0))
        totals[table.device_type] = (table.samples[0], forward_s + table.forward_s[0], backward_s + table.backward_s[0])
    return totals
