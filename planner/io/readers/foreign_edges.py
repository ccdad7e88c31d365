"""Edges given as a list of `{"sourceId", "destId", bytes}`."""

from dataclasses import dataclass

from stagecut.planner.chains.task_graph import Tensor
from stagecut.planner.io.documents.tree import Node
from stagecut.planner.io.readers.foreign_fields import ForeignFields, Id


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEdge:
    """What one node sends to another."""

    source: int
    target: int
    """Index of the node in the file, as for `source`."""
    num_bytes: float
    """As stated in the file."""


def read_edges(
    root: Node, identities: tuple[Id, ...], fields: ForeignFields, *, bytes_key: str
) -> tuple[ForeignEdge, ...]:
    """Read the edges between the nodes with these ids, in the order of the file."""
    index_of = {identity: index for index, identity in enumerate(identities)}
    edges = []
    for entry in fields.items(root, "edges"):
        ends = [_end(entry, key, index_of, fields) for key in ("sourceId", "destId")]
        num_bytes = fields.number(entry, bytes_key)
        if ends[0] is not None and ends[1] is not None:
            edges.append(ForeignEdge(source=ends[0], target=ends[1], num_bytes=num_bytes))
    return tuple(edges)


def tensors_of(edges: tuple[ForeignEdge, ...], *, micro_batch: int) -> tuple[Tensor, ...]:
    """Tensors behind the edges: edges from one node with equal bytes are one tensor with several users."""
    users: dict[tuple[int, float], dict[int, None]] = {}
    for edge in edges:
        users.setdefault((edge.source, edge.num_bytes), {})[edge.target] = None
    return tuple(
        Tensor(source=source, users=tuple(found), num_bytes=num_bytes / micro_batch)
        for (source, num_bytes), found in users.items()
    )


def _end(entry: Node, key: str, index_of: dict[Id, int], fields: ForeignFields) -> int | None:
    identity = fields.identity(entry, key)
    if identity is not None and identity not in index_of:
        node = entry.at(key)
        assert node is not None
        fields.complaints.add(node.line, node.where, f"unknown node {identity!r}")
    return None if identity is None else index_of.get(identity)
