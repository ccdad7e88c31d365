"""Fields of other planners' files: strict about what is needed, indifferent to all other keys."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from stagecut.planner.chains.task_graph import Tensor
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import MAX_NUMBER
from stagecut.planner.io.documents.tree import Node

Id = int | str
Item = TypeVar("Item")


class ForeignFields:
    """Reads fields of mappings; every fault is recorded, and reading goes on with a harmless value."""

    def __init__(self, complaints: Complaints) -> None:
        self.complaints = complaints

    def number(self, entry: Node, key: str, *, default: float | None = None) -> float:
        """Read an amount: a number from 0 to 1e30."""
        node = entry.at(key)
        if node is None and default is not None:
            return default
        if node is None:
            return self._missing(entry, key, "a number from 0 to 1e+30")
        return self.amount(node)

    def amount(self, node: Node) -> float:
        """The value of a node as an amount."""
        value = node.value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
            self.complaints.add(node.line, node.where, f"must be a number from 0 to 1e+30, got {node.shown}")
            return 0.0
        return float(value)

    def identity(self, entry: Node, key: str) -> Id | None:
        """Read the id of a node, a number or text; None, with a complaint, if there is none."""
        node = entry.at(key)
        if node is not None and isinstance(node.value, int | str) and not isinstance(node.value, bool):
            return node.value
        if node is None:
            self._missing(entry, key, "the id of a node, a number or text")
        else:
            self.complaints.add(node.line, node.where, f"must be the id of a node, a number or text, got {node.shown}")
        return None

    def flag(self, entry: Node, key: str, *, default: bool) -> bool:
        """Read true or false, possibly written as 1 or 0."""
        node = entry.at(key)
        if node is None:
            return default
        if node.value not in (True, False):
            self.complaints.add(node.line, node.where, f"must be true, false, 1 or 0, got {node.shown}")
        return node.value in (True, 1)

    def items(self, entry: Node, key: str, *, least: int = 0) -> tuple[Node, ...]:
        """Read a list of mappings."""
        node = entry.at(key)
        if node is None:
            self._missing(entry, key, "a list")
            return ()
        if not isinstance(node.value, tuple) or len(node.value) < least:
            wanted = "a non-empty list" if least else "a list"
            self.complaints.add(node.line, node.where, f"must be {wanted}, got {node.shown}")
            return ()
        for item in node.value:
            if not isinstance(item.value, Mapping):
                self.complaints.add(item.line, item.where, f"must be a mapping, got {item.shown}")
        return tuple(item for item in node.value if isinstance(item.value, Mapping))

    def identified(self, entry: Node, key: str, make: Callable[[Node, Id], Item]) -> dict[Id, Item]:
        """Make an item from each mapping of a list, keyed by its unique `id`, in the order of the file."""
        found: dict[Id, Item] = {}
        for item in self.items(entry, key, least=1):
            identity = self.identity(item, "id")
            if identity in found:
                self.complaints.add(item.line, (*item.where, "id"), f"{identity!r} appears twice")
            elif identity is not None:
                found[identity] = make(item, identity)
        return found

    def _missing(self, entry: Node, key: str, wanted: str) -> float:
        self.complaints.add(entry.line, (*entry.where, key), f"is missing, must be {wanted}")
        return 0.0


def title(entry: Node, *, default: str) -> str:
    """The printable part of a node's name, or the default if it has none."""
    node = entry.at("name")
    text = str(node.value) if node is not None and isinstance(node.value, str | int) else ""
    printable = "".join(letter for letter in text if letter.isprintable()).strip()
    return printable[:80] or default


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignEdge:
    """What one node sends to another."""

    source: int
    target: int
    """Index of the node in the file, as for `source`."""
    num_bytes: float
    """Bytes as stated in the file."""


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
