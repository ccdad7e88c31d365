"""A profile with fewer layers: neighbours merged, for chains of more layers than a search can take."""

from collections.abc import Sequence
from dataclasses import replace

from stagecut.planner.chains.chain import skip_edges_of
from stagecut.planner.chains.merging import coarser_runs
from stagecut.planner.chains.naming import names_of_runs
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable


def coarsened(profile: ModelProfile, most: int) -> ModelProfile:
    """The profile with no more than so many layers; itself where it has no more.

    A merged layer takes as long, and holds as much, as its parts one after another; every boundary that is
    left carries what it carried. Neighbours that take the least time together become one, again and again,
    but such that differ in whether devices can share them, or in what they were measured on, only in the end.
    """
    if profile.num_layers <= most:
        return profile
    kinds = [(layer.tensor_parallel_bytes is None, _measured(layer)) for layer in profile.layers]
    runs = coarser_runs(_weights(profile.layers), most, alike=lambda index: kinds[index - 1] == kinds[index])
    run_of = {layer: number for number, run in enumerate(runs) for layer in run}
    names = names_of_runs([(profile.layers[run[0]].name, profile.layers[run[-1]].name, len(run)) for run in runs])
    return ModelProfile(
        name=profile.name,
        layers=tuple(
            _merged([profile.layers[layer] for layer in run], name) for run, name in zip(runs, names, strict=True)
        ),
        skip_edges=_edges(profile.skip_edges, run_of),
        precision=profile.precision,
        sequence_length=profile.sequence_length,
    )


def lost_times(profile: ModelProfile, coarse: ModelProfile) -> tuple[str, ...]:
    """Device types of which no time is left of some layer, for its parts were measured at no common size."""
    before = set.intersection(*({table.device_type for table in layer.times} for layer in profile.layers))
    after = set.intersection(*({table.device_type for table in layer.times} for layer in coarse.layers))
    return tuple(sorted(before - after))


def _merged(parts: Sequence[Layer], name: str) -> Layer:
    if len(parts) == 1:
        return replace(parts[0], name=name)
    shared = [part.tensor_parallel_bytes for part in parts if part.tensor_parallel_bytes is not None]
    can_share = len(shared) == len(parts)
    times = _times_of_all([part.times for part in parts])
    return Layer(
        name=name,
        kind=max(parts, key=lambda part: _seconds(part) or part.forward_flops).kind,
        params_bytes=sum(part.params_bytes for part in parts),
        shared_params_bytes=sum(part.shared_params_bytes for part in parts),
        forward_flops=sum(part.forward_flops for part in parts),
        saved_bytes=sum(part.saved_bytes for part in parts),
        output_bytes=parts[-1].output_bytes,
        working_bytes=max(part.working_bytes for part in parts),
        tensor_parallel_bytes=sum(shared) if can_share else None,
        times=tuple(table for table in times if can_share or table.tensor_parallel == 1),
    )


def _times_of_all(parts: Sequence[Sequence[TimeTable]]) -> tuple[TimeTable, ...]:
    """Times of parts that run one after another, at the sizes at which all of them were measured."""
    by_key = [{(table.device_type, table.tensor_parallel): table for table in tables} for tables in parts]
    of_all = (key for key in by_key[0] if all(key in tables for tables in by_key))
    sums = (_sum([tables[key] for tables in by_key]) for key in of_all)
    return tuple(table for table in sums if table is not None)


def _sum(tables: Sequence[TimeTable]) -> TimeTable | None:
    samples = tuple(sorted(set.intersection(*(set(table.samples) for table in tables))))
    if not samples:
        return None
    forward_s, backward_s = (
        tuple(sum(dict(zip(table.samples, times, strict=True))[size] for table, times in column) for size in samples)
        for column in (
            [(table, table.forward_s) for table in tables],
            [(table, table.backward_s) for table in tables],
        )
    )
    first = tables[0]
    return TimeTable(
        device_type=first.device_type,
        tensor_parallel=first.tensor_parallel,
        samples=samples,
        forward_s=forward_s,
        backward_s=backward_s,
    )


def _edges(edges: Sequence[SkipEdge], run_of: dict[int, int]) -> tuple[SkipEdge, ...]:
    """Edges between merged layers; those inside of one are gone."""
    crossing: dict[tuple[int, ...], float] = {}
    for edge in edges:
        ends = tuple(sorted({run_of[layer] for layer in (edge.source, *edge.targets)}))
        if len(ends) > 1:
            crossing[ends] = crossing.get(ends, 0.0) + edge.num_bytes
    return skip_edges_of(crossing)


def _measured(layer: Layer) -> frozenset[tuple[str, int, tuple[int, ...]]]:
    return frozenset((table.device_type, table.tensor_parallel, table.samples) for table in layer.times)


def _weights(layers: Sequence[Layer]) -> list[float]:
    """How long layers take beside each other: measured where all were, else by their operations, else alike."""
    seconds = [_seconds(layer) for layer in layers]
    if all(value is not None for value in seconds):
        return [value or 0.0 for value in seconds]
    return (
        [layer.forward_flops for layer in layers]
        if any(layer.forward_flops for layer in layers)
        else [1.0] * len(layers)
    )


def _seconds(layer: Layer) -> float | None:
    """Forward and backward on one device, at the smallest size, mean over the device types; None if not measured."""
    alone = [table for table in layer.times if table.tensor_parallel == 1]
    return sum(table.forward_s[0] + table.backward_s[0] for table in alone) / len(alone) if alone else None
