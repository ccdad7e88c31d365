"""How a profile file holds the operators of layers: layers with the same operators state them once."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field, ValidationError

from stagecut.planner.core.layer_graphs.operator_graph import graph_faults
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import SAMPLE, Operator, Port, Split, Tensor, Weight
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.complaints import Complaints
from stagecut.planner.io.documents.fields import Entry, Index, Name
from stagecut.planner.io.documents.mirrors import mirrors
from stagecut.planner.io.documents.records import from_entry, tree_of
from stagecut.planner.io.documents.tree import Node

Dims = Annotated[list[Name], Field(max_length=10)]


@mirrors(Tensor)
class TensorEntry(Entry):
    dims: Dims


@mirrors(Port)
class PortEntry(Entry):
    dims: Dims


@mirrors(Weight)
class WeightEntry(Entry):
    dims: Dims


@mirrors(Split)
class SplitEntry(Entry):
    """A dimension along which an operator can be divided."""


@mirrors(Operator)
class OperatorEntry(Entry):
    inputs: list[PortEntry] = Field(default_factory=list)
    """The tensors that it takes, in order."""
    outputs: Annotated[list[TensorEntry], Field(min_length=1)]
    """The tensors that it makes."""
    weights: list[WeightEntry] = Field(default_factory=list)
    """Its weights."""
    splits: Annotated[list[SplitEntry], Field(min_length=1)] = Field(
        default_factory=lambda: [SplitEntry.model_validate({"dim": SAMPLE})]
    )


class GraphEntry(Entry):
    """Operators, and the layers that consist of them."""

    layers: Annotated[list[Index | Name], Field(min_length=1)]
    """Names of the layers, or their indices from 0."""
    graph: Annotated[list[OperatorEntry], Field(min_length=1)]
    """Their operators, each after those whose tensors it takes."""


def check_graph(graph: Node, complaints: Complaints) -> None:
    """Check what a schema cannot express, in operators that follow it."""
    try:
        operators = operators_of(GraphEntry.model_validate(graph.plain()))
    except ValidationError:  # complained of elsewhere
        return
    except BadInputError as error:
        complaints.add(graph.line, graph.where, "; ".join(error.complaints))
        return
    for steps, fault in graph_faults(operators):
        node = graph.at("graph", *steps) or graph
        complaints.add(node.line, node.where, fault)


def operators_of(entry: GraphEntry) -> tuple[Operator, ...]:
    """The operators of an entry; raises a BadInputError for values that contradict each other."""
    return tuple(from_entry(Operator, operator) for operator in entry.graph)


def graph_trees(layers: Sequence[Layer]) -> list[Tree]:
    """The operators of all layers that have some, each graph once."""
    alike: dict[tuple[Operator, ...], list[int]] = {}
    for index, layer in enumerate(layers):
        if layer.operators:
            alike.setdefault(layer.operators, []).append(index)
    return [
        {"layers": list(indices), "graph": [tree_of(operator, omit_empty=True) for operator in operators]}
        for operators, indices in alike.items()
    ]
