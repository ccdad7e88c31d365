"""Workloads of the device-placement study: forward and backward nodes in one graph.

    {"nodes": [{"id": 1, "fpgaLatency": 0.1, "cpuLatency": 1.0, "supportedOnFpga": 1, "isBackwardNode": 0,
                "colorClass": 4, "size": 1e6}],
     "edges": [{"sourceId": 1, "destId": 2, "cost": 0.006, "size": 1e6}], ...}

Source: Tarnawski, Phanishayee, Devanur, Mahajan and Nina Paravecino, Efficient Algorithms for Device Placement
of DNN Graph Operators, NeurIPS 2020, and the input files in the authors' repository. The graph is made from
the forward pass:

- Nodes of one colour class must be on one device. Those of the forward pass become one node if that closes
  no cycle.
- A backward node adds its time to the forward node of its colour or, if there is none, to a neighbour.
- A node that takes no time, reads nothing and has a size stands for weights of the nodes that read it.
- Bytes sent are the `size` of an edge if edges have one, else its `cost` times a given bandwidth.
- `size` of a node is all of its memory: the bytes it sends count as activations, the rest as weights.
"""

from dataclasses import dataclass, replace

from stagecut.planner.chains.colour_classes import merge_classes
from stagecut.planner.chains.task_graph import TaskGraph, Tensor, Weights
from stagecut.planner.core.model import Layer
from stagecut.planner.io.documents.tree import Document, Node
from stagecut.planner.io.readers.conversion import Choices, Converted, converted, micro_batch_note
from stagecut.planner.io.readers.foreign_fields import ForeignEdge, ForeignFields, Id, read_edges, tensors_of, title

BACKWARD_FACTOR = 2.0
"""Ratio of backward to forward times assumed for inference workloads, which have no backward pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _FileNode:
    """A node in the file."""

    name: str
    seconds: float
    size_bytes: float
    is_backward: bool
    colour: Id | None
    on_cpu: bool


def read_dnn_partitioning(document: Document, choices: Choices) -> Converted:
    """Convert a workload; raises the errors of :func:`stagecut.planner.io.readers.formats.convert`."""
    root, complaints = document.root, document.complaints
    fields = ForeignFields(complaints)
    parts = fields.identified(root, "nodes", lambda entry, identity: _part(entry, identity, fields, choices))
    if parts and all(part.is_backward for part in parts.values()):
        complaints.add(
            root.line, ("nodes",), "all belong to the backward pass; the layers are made from the forward pass"
        )
    edges = _edges(root, tuple(parts), fields, choices)
    workload = complaints.finish((tuple(parts.values()), edges), lambda sound: _Workload(*sound))
    graph = workload.graph(choices)
    notes = (micro_batch_note(choices, "the workload's batch"), *workload.notes)
    return converted(graph, choices, num_nodes=len(parts), notes=notes)


def _part(entry: Node, identity: Id, fields: ForeignFields, choices: Choices) -> _FileNode:
    colour = entry.at("colorClass")
    supported = fields.flag(entry, "supportedOnFpga", default=True)
    return _FileNode(
        name=title(entry, default=f"node{identity}"),
        seconds=fields.number(entry, "fpgaLatency" if supported else "cpuLatency") * choices.time_unit.seconds,
        size_bytes=fields.number(entry, "size", default=0.0),
        is_backward=fields.flag(entry, "isBackwardNode", default=False),
        colour=colour.value if colour is not None and isinstance(colour.value, int | str) else None,
        on_cpu=not supported,
    )


def _edges(root: Node, identities: tuple[Id, ...], fields: ForeignFields, choices: Choices) -> tuple[ForeignEdge, ...]:
    entries = root.items("edges")
    if all(entry.at("size") is not None for entry in entries):
        return read_edges(root, identities, fields, bytes_key="size")
    found = read_edges(root, identities, fields, bytes_key="cost")
    if choices.link_bytes_per_s is None:
        rule = "edges have no 'size' in bytes; give the bandwidth behind 'cost' with --link-bandwidth BYTES_PER_S"
        fields.complaints.add(root.line, ("edges",), rule)
        return ()
    scale = choices.link_bytes_per_s * choices.time_unit.seconds
    return tuple(replace(edge, num_bytes=edge.num_bytes * scale) for edge in found)


class _Workload:
    """Builds the graph of the forward pass from the nodes in a file."""

    def __init__(self, parts: tuple[_FileNode, ...], edges: tuple[ForeignEdge, ...]) -> None:
        self._parts = parts
        self._edges = edges
        backward = {index for index, part in enumerate(parts) if part.is_backward}
        self._forward_edges = [edge for edge in edges if not {edge.source, edge.target} & backward]
        self._sent_bytes = [0.0] * len(parts)
        for tensor in tensors_of(tuple(self._forward_edges), micro_batch=1):
            self._sent_bytes[tensor.source] += tensor.num_bytes
        self._weights = self._find_weights(backward)
        forward = [index for index in range(len(parts)) if index not in backward | self._weights]
        colours = {index: parts[index].colour for index in forward}
        pairs = {(edge.source, edge.target) for edge in self._forward_edges if edge.source not in self._weights}
        self._group_of, self._split_classes = merge_classes(colours, pairs)
        self._owner = self._owners_of_backward(backward)

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions made."""
        on_cpu = sum(part.on_cpu for part in self._parts)
        remarks = (
            (
                not self._owner,
                f"no backward pass: backwards are assumed to take {BACKWARD_FACTOR:g} times as long as forwards",
            ),
            (on_cpu, f"{on_cpu} nodes are not supported on accelerators and count with their CPU time"),
            (
                self._split_classes,
                f"{len(self._split_classes)} colour classes cannot be a single layer of a chain and were split",
            ),
            (True, "the bytes a node sends count as activations, the rest of its size as weights"),
        )
        return tuple(remark for holds, remark in remarks if holds)

    def graph(self, choices: Choices) -> TaskGraph:
        """The forward pass, with the times of both passes."""
        groups = sorted(set(self._group_of.values()))
        index_of = {group: index for index, group in enumerate(groups)}
        place = {part: index_of[group] for part, group in self._group_of.items()}
        members: list[list[int]] = [[] for _ in groups]
        for part, index in place.items():
            members[index].append(part)
        backward_s = [0.0] * len(groups)
        for part, owner in self._owner.items():
            backward_s[place[owner]] += self._parts[part].seconds
        return TaskGraph(
            name=choices.name,
            nodes=tuple(
                self._node(group, seconds, choices) for group, seconds in zip(members, backward_s, strict=True)
            ),
            tensors=self._tensors(place, choices),
            weights=self._shared_weights(place),
        )

    def _find_weights(self, backward: set[int]) -> set[int]:
        """Parts with a size that take no time, read nothing and are read by others."""
        reading = {edge.target for edge in self._forward_edges}
        read = {edge.source for edge in self._forward_edges}
        return {
            index
            for index, part in enumerate(self._parts)
            if index in read - reading - backward and part.seconds == 0 and part.size_bytes > 0
        }

    def _owners_of_backward(self, backward: set[int]) -> dict[int, int]:
        """The forward part to which each backward part belongs."""
        by_colour: dict[Id, int] = {}
        for index in self._group_of:
            if (colour := self._parts[index].colour) is not None:
                by_colour.setdefault(colour, index)
        users = {edge.source: edge.target for edge in reversed(self._forward_edges)}
        for index in sorted(self._weights):
            colour = self._parts[index].colour
            if colour is not None and users[index] in self._group_of:
                by_colour.setdefault(colour, users[index])
        owner = {
            index: by_colour[colour]
            for index in sorted(backward)
            if (colour := self._parts[index].colour) is not None and colour in by_colour
        }
        self._spread(owner, backward)
        return owner

    def _spread(self, owner: dict[int, int], backward: set[int]) -> None:
        """Give the other parts the owner of a neighbour, round by round, or in the end the first forward part."""
        neighbours: dict[int, list[int]] = {index: [] for index in sorted(backward)}
        for edge in self._edges:
            for this, other in ((edge.target, edge.source), (edge.source, edge.target)):
                if this in neighbours:
                    neighbours[this].append(other)
        waiting = [index for index in neighbours if index not in owner]
        while waiting:
            found = {
                index: owner.get(other, other)
                for index in waiting
                for other in reversed(neighbours[index])
                if other in owner or other in self._group_of
            }
            owner.update(found or dict.fromkeys(waiting, next(iter(self._group_of))))
            waiting = [index for index in waiting if index not in owner]

    def _node(self, group: list[int], backward_s: float, choices: Choices) -> Layer:
        main = max(group, key=lambda index: self._parts[index].seconds)
        forward_s = sum(self._parts[index].seconds for index in group)
        handed = sum(min(self._sent_bytes[index], self._parts[index].size_bytes) for index in group)
        return Layer(
            name=self._parts[main].name,
            kind=self._parts[main].name.rstrip("0123456789_") or "layer",
            params_bytes=sum(self._parts[index].size_bytes for index in group) - handed,
            saved_bytes=handed / choices.micro_batch,
            times=(choices.times(forward_s, backward_s if self._owner else BACKWARD_FACTOR * forward_s),),
        )

    def _tensors(self, place: dict[int, int], choices: Choices) -> tuple[Tensor, ...]:
        """Tensors that leave a group, one per output of a part."""
        edges = tuple(edge for edge in self._forward_edges if edge.source not in self._weights)
        return tuple(
            Tensor(source=place[tensor.source], users=tuple(sorted(outside)), num_bytes=tensor.num_bytes)
            for tensor in tensors_of(edges, micro_batch=choices.micro_batch)
            if (outside := {place[user] for user in tensor.users} - {place[tensor.source]})
        )

    def _shared_weights(self, place: dict[int, int]) -> tuple[Weights, ...]:
        users: dict[int, set[int]] = {}
        for edge in self._forward_edges:
            if edge.source in self._weights:
                users.setdefault(edge.source, set()).add(place[edge.target])
        return tuple(
            Weights(users=tuple(sorted(found)), num_bytes=self._parts[index].size_bytes)
            for index, found in sorted(users.items())
        )
