"""A graph linearised into a chain of layers."""

from dataclasses import replace

from stagecut.planner.chains.joining import joined_layer, names_of_runs, skip_edges_between
from stagecut.planner.chains.merging import coarser_groups, merged_groups
from stagecut.planner.chains.ordering import smallest_order
from stagecut.planner.chains.task_graph import TaskGraph
from stagecut.planner.core.model import ModelProfile, SkipEdge
from stagecut.planner.core.precision import Precision


def chain_of(
    graph: TaskGraph, *, precision: Precision, keep_nodes: bool = False, max_layers: int | None = None
) -> ModelProfile:
    """The profile of a graph: its nodes in order, merged where a cut is never useful.

    Every tensor crosses every boundary up to its last user, once: as the output of a layer if the next
    layer is its only user, as a skip edge otherwise.

    `keep_nodes` leaves every node a layer of its own; `max_layers` merges further neighbours until at most this many
    layers are left.
    """
    order = smallest_order(graph)
    groups = tuple((node,) for node in order) if keep_nodes else merged_groups(graph, order)
    if max_layers is not None:
        groups = coarser_groups(graph, groups, max_layers)
    layer_of = {node: layer for layer, group in enumerate(groups) for node in group}
    outputs, skip_edges = _crossings(graph, layer_of)
    owned, copied = _weights(graph, layer_of)
    parts = [[graph.nodes[node] for node in group] for group in groups]
    names = names_of_runs([(group[0].name, group[-1].name, len(group)) for group in parts])
    layers = (
        replace(
            layer,
            params_bytes=layer.params_bytes + owned.get(index, 0.0),
            shared_params_bytes=copied.get(index, 0.0),
            output_bytes=outputs.get(index, 0.0),
        )
        for index, layer in enumerate(map(joined_layer, parts, names))
    )
    return ModelProfile(name=graph.name, layers=tuple(layers), skip_edges=skip_edges, precision=precision)


def _crossings(graph: TaskGraph, layer_of: dict[int, int]) -> tuple[dict[int, float], tuple[SkipEdge, ...]]:
    """Bytes that each layer hands to the next one, and the tensors that skip layers."""
    outputs: dict[int, float] = {}
    skips: list[tuple[list[int], float]] = []
    for tensor in graph.tensors:
        source = layer_of[tensor.source]
        ends = [source, *(layer_of[user] for user in tensor.users)]
        if set(ends) == {source, source + 1}:
            outputs[source] = outputs.get(source, 0.0) + tensor.num_bytes
        elif tensor.num_bytes > 0:
            skips.append((ends, tensor.num_bytes))
    return outputs, skip_edges_between(skips)


def _weights(graph: TaskGraph, layer_of: dict[int, int]) -> tuple[dict[int, float], dict[int, float]]:
    """Bytes of weights that belong to no single node, by the layer that owns them and by those that hold a copy."""
    owned: dict[int, float] = {}
    copied: dict[int, float] = {}
    for weights in graph.weights:
        first, *others = sorted({layer_of[user] for user in weights.users})
        owned[first] = owned.get(first, 0.0) + weights.num_bytes
        for layer in others:
            copied[layer] = copied.get(layer, 0.0) + weights.num_bytes
    return owned, copied
