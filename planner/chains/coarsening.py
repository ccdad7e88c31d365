"""A profile with fewer layers: neighbours merged, for chains too long to be searched."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from stagecut.planner.chains.joining import joined_layer, names_of_runs, seconds_of, skip_edges_between
from stagecut.planner.chains.merging import coarser_runs
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge


def coarsened(profile: ModelProfile, most: int) -> ModelProfile:
    """The profile with at most that many layers; unchanged if it has no more.

    Every remaining boundary carries what it carried before. The two neighbours that take the least time
    together are merged, again and again; neighbours that differ in whether devices can share them, or in
    what they were measured on, come last.
    """
    if profile.num_layers <= most:
        return profile
    kinds = [(layer.tensor_parallel_bytes is None, _measured(layer)) for layer in profile.layers]
    runs = coarser_runs(_weights(profile.layers), most, alike=lambda index: kinds[index - 1] == kinds[index])
    run_of = {layer: number for number, run in enumerate(runs) for layer in run}
    parts = [[profile.layers[layer] for layer in run] for run in runs]
    names = names_of_runs([(run[0].name, run[-1].name, len(run)) for run in parts])
    edges = [([run_of[layer] for layer in (edge.source, *edge.targets)], edge.num_bytes) for edge in profile.skip_edges]
    return replace(profile, layers=tuple(map(joined_layer, parts, names)), skip_edges=skip_edges_between(edges))


def by_blocks(model: ModelProfile) -> ModelProfile:
    """The profile with one layer per block: neighbours whose names agree up to the first dot."""
    groups = [list(found) for _, found in groupby(model.layers, key=lambda layer: layer.name.partition(".")[0])]
    block_of = [index for index, group in enumerate(groups) for _ in group]
    edges = (
        SkipEdge(source=block_of[edge.source], target=block_of[edge.target], num_bytes=edge.num_bytes)
        for edge in model.skip_edges
    )
    return replace(
        model,
        layers=tuple(map(_block, groups)),
        skip_edges=tuple(edge for edge in edges if edge.source < edge.target),
    )


def lost_times(profile: ModelProfile, coarse: ModelProfile) -> tuple[str, ...]:
    """Device types on which some merged layer has no times left, its parts having no measured size in common."""
    before, after = (
        set.intersection(*({table.device_type for table in layer.times} for layer in model.layers))
        for model in (profile, coarse)
    )
    return tuple(sorted(before - after))


def _block(layers: list[Layer]) -> Layer:
    if len(layers) == 1:
        return layers[0]
    return replace(joined_layer(layers, layers[0].name.partition(".")[0]), kind="block")


def _measured(layer: Layer) -> frozenset[tuple[str, int, tuple[int, ...]]]:
    return frozenset((table.device_type, table.tensor_parallel, table.samples) for table in layer.times)


def _weights(layers: Sequence[Layer]) -> list[float]:
    """Relative durations: measured where every layer was, else by their operations, else all equal."""
    seconds = [found for layer in layers if (found := seconds_of(layer)) is not None]
    if len(seconds) == len(layers):
        return seconds
    flops = [layer.forward_flops for layer in layers]
    return flops if any(flops) else [1.0] * len(layers)
