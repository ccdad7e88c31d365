"""Layers that belong to one block as one layer."""

from dataclasses import replace
from itertools import groupby

from stagecut.planner.chains.chain import add_times
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge


def by_blocks(model: ModelProfile) -> ModelProfile:
    """The profile with one layer for each block: neighbours whose names agree up to the first dot."""
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


def _block(layers: list[Layer]) -> Layer:
    if len(layers) == 1:
        return layers[0]
    shared = [layer.tensor_parallel_bytes for layer in layers if layer.tensor_parallel_bytes is not None]
    return Layer(
        name=layers[0].name.partition(".")[0],
        kind="block",
        params_bytes=sum(layer.params_bytes for layer in layers),
        shared_params_bytes=sum(layer.shared_params_bytes for layer in layers),
        forward_flops=sum(layer.forward_flops for layer in layers),
        saved_bytes=sum(layer.saved_bytes for layer in layers),
        output_bytes=layers[-1].output_bytes,
        working_bytes=max(layer.working_bytes for layer in layers),
        tensor_parallel_bytes=sum(shared) if len(shared) == len(layers) else None,
        times=add_times([layer.times for layer in layers]),
    )
