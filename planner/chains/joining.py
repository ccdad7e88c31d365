"""Layers that run one after another, joined into one."""

from collections.abc import Sequence
from dataclasses import replace

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.model import Layer, SkipEdge, TimeTable

MAX_NAME = 100


def seconds_of(layer: Layer) -> float | None:
    """Forward and backward on one device at the smallest size, averaged over device types; None if not measured."""
    tables = [table for table in layer.times if table.tensor_parallel == 1]
    return sum(table.forward_s[0] + table.backward_s[0] for table in tables) / len(tables) if tables else None


def joined_layer(parts: Sequence[Layer], name: str) -> Layer:
    """One layer that takes as long, and holds as much, as its parts one after another.

    It hands on what the last part does, and keeps the measured times that all parts have. Devices can share
    it if they can share every part.
    """
    if len(parts) == 1:
        return replace(parts[0], name=name)
    reduced_bytes = [part.tensor_parallel_bytes for part in parts if part.tensor_parallel_bytes is not None]
    can_share = len(reduced_bytes) == len(parts)
    times = _joined_times([part.times for part in parts])
    return Layer(
        name=name,
        kind=max(parts, key=lambda part: seconds_of(part) or part.forward_flops).kind,
        params_bytes=sum(part.params_bytes for part in parts),
        shared_params_bytes=sum(part.shared_params_bytes for part in parts),
        forward_flops=sum(part.forward_flops for part in parts),
        saved_bytes=sum(part.saved_bytes for part in parts),
        output_bytes=parts[-1].output_bytes,
        working_bytes=max(part.working_bytes for part in parts),
        tensor_parallel_bytes=sum(reduced_bytes) if can_share else None,
        times=tuple(table for table in times if can_share or table.tensor_parallel == 1),
    )


def skip_edges_between(crossing: Sequence[tuple[Sequence[int], float]]) -> tuple[SkipEdge, ...]:
    """Skip edges from tensors, each with the layers that make and use it and its bytes.

    Tensors with the same ends become one edge; a tensor that stays inside one layer, none.
    """
    sizes: dict[tuple[int, ...], float] = {}
    for layers, num_bytes in crossing:
        ends = tuple(sorted(set(layers)))
        if len(ends) > 1:
            sizes[ends] = sizes.get(ends, 0.0) + num_bytes
    return tuple(
        SkipEdge(source=source, target=last, earlier_targets=tuple(earlier), num_bytes=num_bytes)
        for (source, *earlier, last), num_bytes in sorted(sizes.items())
    )


def _joined_times(parts: Sequence[Sequence[TimeTable]]) -> tuple[TimeTable, ...]:
    """Times of parts that run one after another, at the sizes at which all of them were measured."""
    by_key = [{(table.device_type, table.tensor_parallel): table for table in tables} for tables in parts]
    shared = (key for key in by_key[0] if all(key in tables for tables in by_key))
    sums = (_sum([tables[key] for tables in by_key]) for key in shared)
    return tuple(table for table in sums if table is not None)


def _sum(tables: Sequence[TimeTable]) -> TimeTable | None:
    samples = tuple(sorted(set.intersection(*(set(table.samples) for table in tables))))
    if not samples:
        return None
    forward_s, backward_s = (
        [dict(zip(table.samples, getattr(table, field), strict=True)) for table in tables]
        for field in ("forward_s", "backward_s")
    )
    return replace(
        tables[0],
        samples=samples,
        forward_s=tuple(sum(times[size] for times in forward_s) for size in samples),
        backward_s=tuple(sum(times[size] for times in backward_s) for size in samples),
    )


def names_of_runs(runs: Sequence[tuple[str, str, int]]) -> list[str]:
    """A name for each run, made from those of its first and last part, and numbered where it would repeat.

    Each run is given by its first name, last name and number of parts.
    """
    taken: set[str] = set()
    names = []
    for first, last, num_parts in runs:
        stem = visible(first if num_parts == 1 else f"{first}..{last}")[: MAX_NAME - 8] or "layer"
        number = 1
        while (name := stem if number == 1 else f"{stem}-{number}") in taken:
            number += 1
        taken.add(name)
        names.append(name)
    return names
