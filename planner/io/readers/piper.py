"""Piper's input: a graph whose nodes have tensor-model-parallelism configurations (TMPCs).

    {"nodes": [{"id": 0, "TMPCs": {"1": [{"id": "vanilla", "timePerSample": 0.03, "parameterSize": 1e6,
                                          "memoryUsageA": 2e6, "memoryUsageB": 2e6, ...}, ...], "2": [...]}}],
     "edges": [{"sourceId": 0, "destId": 1, "communicationCost": 1e6}], ...}

Source: Tarnawski, Narayanan and Phanishayee, Piper, NeurIPS 2021, section 3, and the input files in the
authors' repository. A TMPC is one way to run a node on t devices: `timePerSample` is the time of forward and
backward together, including its own collectives, and `memoryUsageA` is kept for every sample in flight. For
each t the fastest TMPC without recomputation is taken, since the planner decides on recomputation itself. A
TMPC with recomputation, recognised by its id, takes one more forward, so the difference is the forward time;
without one, the forward is assumed to be a third of the total.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from stagecut.planner.chains.task_graph import TaskGraph
from stagecut.planner.core.model import Layer, TimeTable
from stagecut.planner.io.documents.tree import Document, Node
from stagecut.planner.io.readers.conversion import FORWARD_SHARE, Choices, Converted, converted, micro_batch_note
from stagecut.planner.io.readers.foreign_fields import ForeignEdge, ForeignFields, Id, read_edges, tensors_of, title


@dataclass(frozen=True, slots=True, kw_only=True)
class _Configuration:
    recomputes: bool
    seconds: float
    params_bytes: float
    saved_bytes: float


def read_piper(document: Document, choices: Choices) -> Converted:
    """Convert a graph; raises the errors of :func:`stagecut.planner.io.readers.formats.convert`."""
    root, complaints = document.root, document.complaints
    fields = ForeignFields(complaints)
    nodes = fields.identified(root, "nodes", lambda entry, identity: _node(entry, identity, fields, choices))
    edges = read_edges(root, tuple(nodes), fields, bytes_key="communicationCost")
    graph = complaints.finish((nodes, edges), lambda sound: _graph(*sound, choices))
    notes = (
        micro_batch_note(choices, "what the file calls a sample"),
        "times include the collectives of tensor parallelism, except those at the ends of a stage",
    )
    return converted(graph, choices, num_nodes=len(nodes), notes=notes)


def _graph(nodes: dict[Id, Layer], edges: tuple[ForeignEdge, ...], choices: Choices) -> TaskGraph:
    return TaskGraph(
        name=choices.name,
        nodes=tuple(nodes.values()),
        tensors=tensors_of(edges, micro_batch=choices.micro_batch),
    )


def _node(entry: Node, identity: Id, fields: ForeignFields, choices: Choices) -> Layer:
    by_degree = _configurations(entry, fields, choices)
    if 1 not in by_degree:
        return Layer(name=f"node{identity}")
    kind = title(entry, default="layer")
    return Layer(
        name=kind if any(letter.isdigit() for letter in kind) else f"{kind}-{identity}",
        kind=kind.rstrip("0123456789") or "layer",
        params_bytes=_plain(by_degree[1]).params_bytes,
        saved_bytes=_plain(by_degree[1]).saved_bytes / choices.micro_batch,
        times=tuple(_times(degree, found, choices) for degree, found in sorted(by_degree.items())),
        tensor_parallel_bytes=0.0 if len(by_degree) > 1 else None,
    )


def _configurations(entry: Node, fields: ForeignFields, choices: Choices) -> dict[int, list[_Configuration]]:
    complaints, node = fields.complaints, entry.at("TMPCs")
    if node is None or not isinstance(node.value, Mapping):
        got = "" if node is None else f", got {node.shown}"
        where = (*entry.where, "TMPCs")
        complaints.add(entry.line, where, f"must map numbers of devices to lists of configurations{got}")
        return {}
    found: dict[int, list[_Configuration]] = {}
    for degree, configurations in node.value.items():
        if not degree.isdecimal() or len(degree) > 5 or int(degree) < 1:
            where = configurations.where
            complaints.add(configurations.line, where, f"the key must be a number of devices, got {degree!r}")
            continue
        read = [_configuration(item, fields, choices) for item in fields.items(node, degree, least=1)]
        if read:
            found[int(degree)] = read
    if 1 not in found:
        complaints.add(node.line, (*node.where, "1"), "is missing: times for a single device are required")
    return found


def _configuration(item: Node, fields: ForeignFields, choices: Choices) -> _Configuration:
    identity = item.at("id")
    return _Configuration(
        recomputes=identity is not None and "recomp" in str(identity.value).lower(),
        seconds=fields.number(item, "timePerSample") * choices.time_unit.seconds,
        params_bytes=fields.number(item, "parameterSize"),
        saved_bytes=fields.number(item, "memoryUsageA"),
    )


def _plain(configurations: list[_Configuration]) -> _Configuration:
    """The fastest without recomputation, or the fastest of all if every one recomputes."""
    return min(configurations, key=lambda found: (found.recomputes, found.seconds))


def _times(degree: int, configurations: list[_Configuration], choices: Choices) -> TimeTable:
    plain = _plain(configurations)
    longer = [found.seconds for found in configurations if found.recomputes and not plain.recomputes]
    forward_s = min(longer) - plain.seconds if longer else plain.seconds * FORWARD_SHARE
    forward_s = min(max(forward_s, 0.0), plain.seconds)
    return choices.times(forward_s, plain.seconds - forward_s, tensor_parallel=degree)
