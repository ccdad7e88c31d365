"""Skip edges in profile files."""

from collections.abc import Callable, Mapping
from typing import Annotated

from pydantic import Field

from stagecut.planner.core.model import SkipEdge
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints, nearest, shorten
from stagecut.planner.io.documents.fields import Entry, Index, Name, NonNegative
from stagecut.planner.io.documents.tree import Node


class SkipEdgeEntry(Entry):
    """A tensor that one layer makes and a later one uses, apart from the chain."""

    source: Index | Name = Field(alias="from")
    """The layer that makes the tensor: name or index from 0."""
    targets: Index | Name | Annotated[list[Index | Name], Field(min_length=1)] = Field(alias="to")
    """The later layer that uses the tensor, or a list of them: names or indices from 0."""
    num_bytes: NonNegative = Field(alias="bytes")
    """Bytes per sample."""


def check_skip_edge(edge: Node, index_of: Mapping[str, int], num_layers: int, complaints: Complaints) -> None:
    """Complain about users that do not exist, do not come after the source, or are named twice.

    Parameters
    ----------
    index_of
        Index of each layer, by name.
    """
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


def skip_edge(entry: SkipEdgeEntry, index: Callable[[int | str], int]) -> SkipEdge:
    """The core data of a checked entry; `index` gives that of a layer."""
    targets = entry.targets if isinstance(entry.targets, list) else [entry.targets]
    *earlier, last = sorted(map(index, targets))
    return SkipEdge(source=index(entry.source), target=last, earlier_targets=tuple(earlier), num_bytes=entry.num_bytes)


def skip_edge_tree(edge: SkipEdge) -> Tree:
    """A skip edge as a file holds it."""
    to = list(edge.targets) if edge.earlier_targets else edge.target
    return {"from": edge.source, "to": to, "bytes": float(edge.num_bytes)}


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
