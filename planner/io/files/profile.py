"""Model profile files."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Field

from stagecut.planner.core.layer_graphs.operator_graph import sum_faults
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.operators.operators import Operator
from stagecut.planner.core.problem import LONG_CHAIN_RULE, MAX_LAYERS
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints, nearest, shorten
from stagecut.planner.io.documents.fields import MAX_COUNT, Entry, FileEntry, Index, Key, Name, NonNegative, Size
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Document, ListLimit, Node, complain_of_repetitions, read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.operators_entry import GraphEntry, check_graph, graph_trees, operators_of

Seconds = NonNegative
TimesBySize = Annotated[dict[Size, Seconds], Field(min_length=1)]
TimesByType = dict[Key, TimesBySize | Seconds]

_LONGEST_CHAIN = ListLimit(key="layers", most=MAX_LAYERS, rule=LONG_CHAIN_RULE)


class SharedTimesEntry(Entry):
    """Times of a layer under tensor parallelism."""

    tensor_parallel: Annotated[int, Field(ge=2, le=MAX_COUNT)]
    """Number of devices that share the layer."""
    forward_s: TimesByType
    """Measured seconds of a forward without collectives, by device type and micro-batch size in samples."""
    backward_s: TimesByType
    """Measured seconds of a backward, for the same device types and micro-batch sizes as forward_s."""


@mirrors(Layer, without=("times", "operators"))
class LayerEntry(Entry):
    """One layer: the smallest unit of the partition."""

    name: Name
    params_bytes: NonNegative
    forward_s: TimesByType = Field(default_factory=dict)
    """Measured seconds of a forward, by device type and micro-batch size in samples; a plain number means size 1."""
    backward_s: TimesByType = Field(default_factory=dict)
    """Measured seconds of a backward, for the same device types and micro-batch sizes as forward_s."""
    tensor_parallel_times: list[SharedTimesEntry] = Field(default_factory=list)
    """Times measured under tensor parallelism."""


class SkipEdgeEntry(Entry):
    """A tensor that one layer makes and a later one uses, apart from the chain."""

    source: Index | Name = Field(alias="from")
    """The layer that makes the tensor: name or index from 0."""
    targets: Index | Name | Annotated[list[Index | Name], Field(min_length=1)] = Field(alias="to")
    """The later layer that uses the tensor, or a list of them: names or indices from 0."""
    num_bytes: NonNegative = Field(alias="bytes")
    """Bytes per sample."""


@mirrors(ModelProfile)
class ProfileFile(FileEntry):
    """A model as a chain of layers with optional skip edges."""

    layers: Annotated[list[LayerEntry], Field(min_length=1)]
    skip_edges: list[SkipEdgeEntry] = Field(default_factory=list)
    operators: list[GraphEntry] = Field(default_factory=list)
    """Operators of layers that can be divided along more than samples."""


def read_profile(path: str | Path, *, to_plan: bool = False) -> ModelProfile:
    """Read a model profile; times are sorted by device type and size.

    With `to_plan`, a chain that is too long to be planned is rejected before its layers are read. Raises a
    BadInputError with every fault of the file.
    """
    return profile_of(read_document(path, limit=_LONGEST_CHAIN if to_plan else None))


def profile_of(document: Document) -> ModelProfile:
    """The model profile in a document; raises the same errors as :func:`read_profile`."""
    entry = validate(document, ProfileFile, kind="profile")
    check_profile(document.root, document.complaints)
    return document.complaints.finish(entry, build_profile)


def check_profile(root: Node, complaints: Complaints) -> None:
    """Check what a schema cannot express: unique names, edges that lead forward, complete tables."""
    layers = root.items("layers")
    complain_of_repetitions(complaints, (layer.at("name") for layer in layers), "layer name")
    for layer in layers:
        _check_times(layer, complaints)
        _check_shared_times(layer, complaints)
    names = [node.value if (node := layer.at("name")) else None for layer in layers]
    index_of = {name: index for index, name in reversed([*enumerate(names)]) if isinstance(name, str)}
    for edge in root.items("skip_edges"):
        _check_skip_edge(edge, index_of, len(layers), complaints)
    _check_graphs(root.items("operators"), index_of, len(layers), complaints)


def build_profile(entry: ProfileFile) -> ModelProfile:
    """The core data of a checked entry."""
    index_of = {layer.name: index for index, layer in enumerate(entry.layers)}

    def index(reference: int | str) -> int:
        return reference if isinstance(reference, int) else index_of[reference]

    graphs: dict[int, tuple[Operator, ...]] = {}
    for graph in entry.operators:
        graphs |= dict.fromkeys(map(index, graph.layers), operators_of(graph))
    layers = tuple(_layer(layer, graphs.get(number, ())) for number, layer in enumerate(entry.layers))
    if faults := [fault for layer in layers if layer.operators for fault in sum_faults(layer)]:
        raise BadInputError(*faults)
    return from_entry(
        ModelProfile,
        entry,
        layers=layers,
        skip_edges=tuple(_skip_edge(edge, index) for edge in entry.skip_edges),
    )


def to_tree(model: ModelProfile, *, operators: bool = True) -> Tree:
    """A profile as a file holds it, with or without operators; layers with the same ones share them."""
    tree = {"schema": 1, **tree_of(model, without=("layers", "skip_edges"), omit_empty=True)}
    tree["layers"] = [_layer_tree(layer) for layer in model.layers]
    if operators and (graphs := graph_trees(model.layers)):
        tree["operators"] = graphs
    if model.skip_edges:
        tree["skip_edges"] = [_skip_edge_tree(edge) for edge in model.skip_edges]
    return tree


def _check_times(layer: Node, complaints: Complaints) -> None:
    for device_type in dict.fromkeys((*layer.keys("forward_s"), *layer.keys("backward_s"))):
        forward, backward = layer.at("forward_s", device_type), layer.at("backward_s", device_type)
        for times, counterpart, other in ((forward, backward, "backward_s"), (backward, forward, "forward_s")):
            if times is not None and counterpart is None:
                complaints.add(times.line, times.where, f"has no counterpart in {other}; give both or neither")
        if forward is not None and backward is not None and set(_sizes(forward)) != set(_sizes(backward)):
            sizes = f"{', '.join(_sizes(forward)[:20])} and {', '.join(_sizes(backward)[:20])}"
            rule = f"micro-batch sizes must be the same in forward_s and backward_s, got {sizes}"
            complaints.add(forward.line, forward.where, rule)


def _check_shared_times(layer: Node, complaints: Complaints) -> None:
    shared = layer.items("tensor_parallel_times")
    degrees = (times.at("tensor_parallel") for times in shared)
    complain_of_repetitions(complaints, degrees, "tensor-parallel degree")
    for times in shared:
        _check_times(times, complaints)
    bytes_node, times_node = layer.at("tensor_parallel_bytes"), layer.at("tensor_parallel_times")
    if shared and times_node is not None and (bytes_node is None or bytes_node.value is None):
        complaints.add(
            times_node.line, times_node.where, "belong to a layer that cannot be shared; give tensor_parallel_bytes"
        )


def _check_skip_edge(edge: Node, index_of: Mapping[str, int], num_layers: int, complaints: Complaints) -> None:
    """Complain about users that do not exist, do not come after the source, or are named twice."""
    source = _check_reference(edge.at("from"), index_of, num_layers, complaints)
    first: dict[int, Node] = {}
    for node in edge.items("to") or (edge.at("to"),):
        target = _check_reference(node, index_of, num_layers, complaints)
        if node is None or target is None:
            continue
        if source is not None and source >= target:
            rule = f"must lead forward, got from layer {source} to layer {target}"
            complaints.add(edge.line, edge.where, rule)
        if first.setdefault(target, node) is not node:
            complaints.add(node.line, node.where, f"layer {target} appears twice, first on line {first[target].line}")


def _check_graphs(graphs: Iterable[Node], index_of: Mapping[str, int], num_layers: int, complaints: Complaints) -> None:
    """Complain about graphs that cannot be computed, and about layers that do not exist or have two."""
    first: dict[int, Node] = {}
    for graph in graphs:
        check_graph(graph, complaints)
        for node in graph.items("layers"):
            index = _check_reference(node, index_of, num_layers, complaints)
            if index is not None and first.setdefault(index, node) is not node:
                rule = f"layer {index} has operators already, first on line {first[index].line}"
                complaints.add(node.line, node.where, rule)


def _check_reference(
    node: Node | None, index_of: Mapping[str, int], num_layers: int, complaints: Complaints
) -> int | None:
    """Index of the layer referred to; None, with a complaint, if there is no such layer."""
    if node is None or isinstance(node.value, bool) or not isinstance(node.value, int | str):
        return None
    if isinstance(node.value, str) and node.value in index_of:
        return index_of[node.value]
    if isinstance(node.value, int) and 0 <= node.value < num_layers:
        return node.value
    hint = nearest(str(node.value), index_of)
    accepted = f"the name of a layer or an index from 0 to {num_layers - 1}"
    complaints.add(node.line, node.where, f"must be {accepted}, got {shorten(node.value)}{hint}")
    return None


def _sizes(times: Node) -> tuple[str, ...]:
    return times.keys() if isinstance(times.value, Mapping) else ("1",)


def _layer(entry: LayerEntry, operators: tuple[Operator, ...]) -> Layer:
    shared = sorted(entry.tensor_parallel_times, key=lambda times: times.tensor_parallel)
    tables = (table for times in shared for table in _tables(times, times.tensor_parallel))
    return from_entry(Layer, entry, times=(*_tables(entry, 1), *tables), operators=operators)


def _tables(entry: LayerEntry | SharedTimesEntry, tensor_parallel: int) -> Iterator[TimeTable]:
    """Tables of one tensor-parallel degree, by device type."""
    for device_type in sorted(entry.forward_s):
        forward_s, backward_s = (_by_size(times[device_type]) for times in (entry.forward_s, entry.backward_s))
        samples = tuple(sorted(forward_s))
        yield TimeTable(
            device_type=device_type,
            tensor_parallel=tensor_parallel,
            samples=samples,
            forward_s=tuple(forward_s[size] for size in samples),
            backward_s=tuple(backward_s[size] for size in samples),
        )


def _by_size(times: dict[str, float] | float) -> dict[int, float]:
    return {int(size): value for size, value in times.items()} if isinstance(times, dict) else {1: times}


def _skip_edge(entry: SkipEdgeEntry, index: Callable[[int | str], int]) -> SkipEdge:
    """The core data of a checked entry; `index` gives that of a layer."""
    targets = entry.targets if isinstance(entry.targets, list) else [entry.targets]
    *earlier, last = sorted(map(index, targets))
    return SkipEdge(source=index(entry.source), target=last, earlier_targets=tuple(earlier), num_bytes=entry.num_bytes)


def _layer_tree(layer: Layer) -> Tree:
    tree = tree_of(layer, without=("times", "operators"), omit_empty=True)
    by_degree: dict[int, dict[str, dict[str, Tree]]] = {}
    for table in layer.times:
        times = by_degree.setdefault(table.tensor_parallel, {"forward_s": {}, "backward_s": {}})
        sizes = [*map(str, table.samples)]
        times["forward_s"][table.device_type] = dict(zip(sizes, map(float, table.forward_s), strict=True))
        times["backward_s"][table.device_type] = dict(zip(sizes, map(float, table.backward_s), strict=True))
    tree.update(by_degree.pop(1, {}))
    if by_degree:
        tree["tensor_parallel_times"] = [
            {"tensor_parallel": degree, **times} for degree, times in sorted(by_degree.items())
        ]
    return tree


def _skip_edge_tree(edge: SkipEdge) -> Tree:
    to = list(edge.targets) if edge.earlier_targets else edge.target
    return {"from": edge.source, "to": to, "bytes": float(edge.num_bytes)}
