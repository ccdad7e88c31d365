"""Graphs written by PipeDream's profiler, which DAPPLE's planner also reads.

One line per node, then one per edge, indented by a tab:

    node4 -- Linear(8, 8) -- forward_compute_time=0.1, backward_compute_time=0.2, activation_size=64, parameter_size=32
        node4 -- node5

Times are milliseconds per minibatch, whose size the file does not state; sizes are bytes. An activation size
may be a list, `[64.0; 8.0]`, of the node's outputs. Source: Narayanan et al., PipeDream, SOSP 2019, and the
profiler's files in the authors' repository; Fan et al., DAPPLE, PPoPP 2021, for the second use.
"""

import re
from dataclasses import dataclass

from stagecut.planner.chains.task_graph import TaskGraph, Tensor
from stagecut.planner.core.model import Layer
from stagecut.planner.io.documents.complaints import Complaints, nearest
from stagecut.planner.io.documents.fields import MAX_NUMBER
from stagecut.planner.io.readers.conversion import Choices, Converted, converted, micro_batch_note

SEPARATOR = " -- "
KEYS = ("forward_compute_time", "backward_compute_time", "activation_size", "parameter_size")
_FIELD = re.compile(r"(\w+)\s*=\s*(\[[^\]]*\]|[^,\s]+)")
_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
SAVED_NOTE = (
    "every activation is kept for the backward; inputs are available on every device: they are not sent, "
    "and the time to load them does not count"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _NodeLine:
    line: int
    description: str
    values: dict[str, float]

    @property
    def kind(self) -> str:
        """The operator, without its arguments."""
        operator = self.description.partition("(")[0].strip()
        return "".join(letter for letter in operator if letter.isprintable())[:80] or "layer"


def looks_like_pipedream(text: str) -> bool:
    """Whether the text starts like such a graph."""
    first = next((line for line in text.splitlines() if line.strip()), "")
    return SEPARATOR in first and not first.lstrip().startswith(("{", "["))


def read_pipedream(text: str, *, file: str, choices: Choices) -> Converted:
    """Convert a graph; raises the errors of :func:`stagecut.planner.io.readers.formats.convert`."""
    complaints = Complaints(file)
    nodes, edges = _parse(text, complaints)
    if not nodes:
        complaints.add(
            1, (), f"has no nodes; expected lines such as 'node1{SEPARATOR}Linear{SEPARATOR}{KEYS[0]}=0.1, ...'"
        )
    index_of = {name: index for index, name in enumerate(nodes)}
    users = _users(edges, index_of, complaints)
    graph = complaints.finish((nodes, users), lambda sound: _graph(*sound, choices))
    notes = (micro_batch_note(choices, "a minibatch of the profile"), SAVED_NOTE)
    return converted(graph, choices, num_nodes=len(nodes), notes=notes)


def _parse(text: str, complaints: Complaints) -> tuple[dict[str, _NodeLine], list[tuple[int, str, str]]]:
    """Nodes by name, and edges with their lines."""
    nodes: dict[str, _NodeLine] = {}
    edges: list[tuple[int, str, str]] = []
    for number, line in enumerate(text.splitlines(), start=1):
        parts = [part.strip() for part in line.strip().split(SEPARATOR)]
        if not line.strip():
            continue
        if len(parts) == 2 and (line[0].isspace() or parts[1] in nodes):
            edges.append((number, parts[0], parts[1]))
        elif len(parts) < 3:
            rule = f"must be 'node{SEPARATOR}description{SEPARATOR}{KEYS[0]}=...', or an edge indented by a tab"
            complaints.add(number, (number,), f"{rule}, got {line.strip()[:60]!r}")
        elif parts[0] in nodes:
            complaints.add(number, (number,), f"{parts[0]!r} appears twice, first on line {nodes[parts[0]].line}")
        else:
            nodes[parts[0]] = _node_line(number, parts, complaints)
    return nodes, edges


def _node_line(number: int, parts: list[str], complaints: Complaints) -> _NodeLine:
    """Parse a node; its description may contain the separator, and what follows the figures is ignored."""
    at = next((index for index, part in enumerate(parts) if index > 1 and "=" in part and KEYS[0] in part), 2)
    found = dict(_FIELD.findall(parts[at]))
    values = {}
    for key in KEYS:
        if key not in found:
            complaints.add(number, (parts[0], key), f"is missing{nearest(key, set(found) - set(KEYS))}")
        else:
            values[key] = _amount(number, (parts[0], key), found[key], complaints)
    return _NodeLine(line=number, description=SEPARATOR.join(parts[1:at]), values=values)


def _amount(number: int, where: tuple[str, str], written: str, complaints: Complaints) -> float:
    """Parse a number, or a list of numbers to add up."""
    total = 0.0
    for part in (word.strip() for word in written.strip("[]").replace(";", ",").split(",")):
        if not part and written.startswith("["):
            continue
        if not _NUMBER.fullmatch(part) or not 0 <= float(part) <= MAX_NUMBER:
            complaints.add(
                number, where, f"must be a number from 0 to 1e+30, or a list [a; b] of them, got {written!r}"
            )
            return 0.0
        total += float(part)
    return total


def _users(
    edges: list[tuple[int, str, str]], index_of: dict[str, int], complaints: Complaints
) -> dict[int, dict[int, None]]:
    """Nodes that use the output of each node."""
    users: dict[int, dict[int, None]] = {}
    for number, source, target in edges:
        for name in (source, target):
            if name not in index_of:
                complaints.add(number, (number, name), f"unknown node{nearest(name, index_of)}")
        if source in index_of and target in index_of:
            users.setdefault(index_of[source], {})[index_of[target]] = None
    return users


def _graph(nodes: dict[str, _NodeLine], users: dict[int, dict[int, None]], choices: Choices) -> TaskGraph:
    lines = tuple(nodes.values())
    used = {user for found in users.values() for user in found}
    inputs = {index for index, line in enumerate(lines) if index not in used and line.description.startswith("Input")}
    return TaskGraph(
        name=choices.name,
        nodes=tuple(
            _node(name, line, choices, computes=index not in inputs) for index, (name, line) in enumerate(nodes.items())
        ),
        tensors=tuple(
            Tensor(
                source=source,
                users=tuple(found),
                num_bytes=0.0 if source in inputs else lines[source].values["activation_size"] / choices.micro_batch,
            )
            for source, found in sorted(users.items())
        ),
    )


def _node(name: str, line: _NodeLine, choices: Choices, *, computes: bool) -> Layer:
    unit = choices.time_unit.seconds if computes else 0.0
    part_of_its_source = line.description.startswith("__getitem__")
    return Layer(
        name=name,
        kind=line.kind,
        params_bytes=line.values["parameter_size"],
        saved_bytes=0.0 if part_of_its_source else line.values["activation_size"] / choices.micro_batch,
        times=(choices.times(line.values["forward_compute_time"] * unit, line.values["backward_compute_time"] * unit),),
    )
