"""A graph made a chain of layers."""

from collections.abc import Iterable, Mapping, Sequence

from stagecut.planner.chains.merging import Group, coarser_groups, merged_groups
from stagecut.planner.chains.naming import names_of_runs
from stagecut.planner.chains.ordering import smallest_order
from stagecut.planner.chains.task_graph import TaskGraph
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.precision import Precision


def chain_of(
    graph: TaskGraph, *, precision: Precision, keep_nodes: bool = False, max_layers: int | None = None
) -> ModelProfile:
    """The profile of a graph: nodes in order, and merged where a cut is never useful.

    Every tensor crosses every boundary up to its last user, once: as output of a layer where that is the
    next one, as skip edge where it is a later one.

    Parameters
    ----------
    keep_nodes
        Leave every node a layer of its own.
    max_layers
        Merge further neighbours until there are no more layers than that.
    """
    order = smallest_order(graph)
    groups = tuple((node,) for node in order) if keep_nodes else merged_groups(graph, order)
    if max_layers is not None:
        groups = coarser_groups(graph, groups, max_layers)
    layer_of = {node: layer for layer, group in enumerate(groups) for node in group}
    outputs, skips = _crossings(graph, layer_of)
    owned, copied = _weights(graph, layer_of)
    ends = [(graph.nodes[group[0]].name, graph.nodes[group[-1]].name, len(group)) for group in groups]
    names = names_of_runs(ends)
    return ModelProfile(
        name=graph.name,
        layers=tuple(
            _layer(graph, group, name, (outputs.get(index, 0.0), owned.get(index, 0.0), copied.get(index, 0.0)))
            for index, (group, name) in enumerate(zip(groups, names, strict=True))
        ),
        skip_edges=skip_edges_of(skips),
        precision=precision,
    )


def skip_edges_of(sizes: Mapping[tuple[int, ...], float]) -> tuple[SkipEdge, ...]:
    """Skip edges from their bytes, by the layer that makes a tensor and all that use it, increasing."""
    return tuple(
        SkipEdge(source=source, target=last, earlier_targets=tuple(earlier), num_bytes=num_bytes)
        for (source, *earlier, last), num_bytes in sorted(sizes.items())
    )


def add_times(tables: Iterable[Sequence[TimeTable]]) -> tuple[TimeTable, ...]:
    """Times of parts that run one after another; what not all parts were measured on is left out."""
    first, *others = [{_key(table): table for table in part} for part in tables]
    shared = [key for key in first if all(key in other for other in others)]
    return tuple(_sum([part[key] for part in (first, *others)]) for key in shared)


def _key(table: TimeTable) -> tuple[str, int, tuple[int, ...]]:
    return table.device_type, table.tensor_parallel, table.samples


def _sum(tables: Sequence[TimeTable]) -> TimeTable:
    return TimeTable(
        device_type=tables[0].device_type,
        tensor_parallel=tables[0].tensor_parallel,
        samples=tables[0].samples,
        forward_s=tuple(map(sum, zip(*(table.forward_s for table in tables), strict=True))),
        backward_s=tuple(map(sum, zip(*(table.backward_s for table in tables), strict=True))),
    )


def _layer(graph: TaskGraph, group: Group, name: str, crossing: tuple[float, float, float]) -> Layer:
    parts = [graph.nodes[node] for node in group]
    output_bytes, owned_bytes, copied_bytes = crossing
    shared = [part.tensor_parallel_bytes for part in parts if part.tensor_parallel_bytes is not None]
    return Layer(
        name=name,
        kind=max(parts, key=lambda part: part.seconds).kind,
        params_bytes=sum(part.params_bytes for part in parts) + owned_bytes,
        shared_params_bytes=copied_bytes,
        saved_bytes=sum(part.saved_bytes for part in parts),
        output_bytes=output_bytes,
        tensor_parallel_bytes=sum(shared) if len(shared) == len(parts) else None,
        times=add_times([part.times for part in parts]),
    )


def _crossings(graph: TaskGraph, layer_of: dict[int, int]) -> tuple[dict[int, float], dict[tuple[int, ...], float]]:
    """Bytes that layers hand to the next one; and that pass by further ones, by maker and users."""
    outputs: dict[int, float] = {}
    skips: dict[tuple[int, ...], float] = {}
    for tensor in graph.tensors:
        source = layer_of[tensor.source]
        ends = tuple(sorted({source, *(layer_of[user] for user in tensor.users)}))
        if ends == (source, source + 1):
            outputs[source] = outputs.get(source, 0.0) + tensor.num_bytes
        elif len(ends) > 1 and tensor.num_bytes > 0:
            skips[ends] = skips.get(ends, 0.0) + tensor.num_bytes
    return outputs, skips


def _weights(graph: TaskGraph, layer_of: dict[int, int]) -> tuple[dict[int, float], dict[int, float]]:
    """Bytes of weights that are no node's own, by the layer that owns them and by those that hold a copy."""
    owned: dict[int, float] = {}
    copied: dict[int, float] = {}
    for weights in graph.weights:
        first, *others = sorted({layer_of[user] for user in weights.users})
        owned[first] = owned.get(first, 0.0) + weights.num_bytes
        for layer in others:
            copied[layer] = copied.get(layer, 0.0) + weights.num_bytes
    return owned, copied
