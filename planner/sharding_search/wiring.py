"""Which operator takes which tensor from which: the model as a graph, before anything is divided."""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace

from stagecut.planner.core.layer_operators import operators_of
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators import INPUT, OUTPUT, Port, Tensor
from stagecut.planner.sharding.layers import saved_input_bytes


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator of a layer; its options are strategies."""

    layer: int
    index: int


@dataclass(frozen=True, slots=True)
class StateNode:
    """What a layer returns over a boundary, and the next one takes; its options are placements without partial sums."""

    boundary: int


Node = OperatorNode | StateNode


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A tensor on its way from where it is made to where it is taken."""

    source: Node
    target: Node
    tensor: Tensor
    port: Port | None = None
    """None: a state takes it."""

    @property
    def returns(self) -> bool:
        """Whether it is what a layer returns, on its way to the state behind it."""
        return isinstance(self.source, OperatorNode) and self.port is None


def output_of(layer: Layer) -> tuple[int, Tensor]:
    """The operator that makes what a layer returns, and that tensor."""
    return next(
        (index, tensor)
        for index, operator in enumerate(operators_of(layer))
        for tensor in operator.outputs
        if tensor.name == OUTPUT
    )


def wires(model: ModelProfile) -> Iterator[Wire]:
    """All tensors on their ways, layer by layer.

    What the first layer takes is loaded where it is needed. A skip edge leads from the state behind its source to the
    states before its targets.
    """
    for number, layer in enumerate(model.layers):
        yield from _inside(number, layer, model.layers[number - 1] if number else None)
        index, tensor = output_of(layer)
        yield Wire(source=OperatorNode(number, index), target=StateNode(number + 1), tensor=tensor)
    for edge in model.skip_edges:
        skipped = Tensor(name="skip", dims=output_of(model.layers[edge.source])[1].dims, num_bytes=edge.num_bytes)
        for target in edge.targets:
            if target > edge.source + 1:
                yield Wire(source=StateNode(edge.source + 1), target=StateNode(target), tensor=skipped)


def _inside(number: int, layer: Layer, before: Layer | None) -> Iterator[Wire]:
    made: dict[str, tuple[Node, Tensor]] = {}
    if before is not None:
        tensor = output_of(before)[1]
        made[INPUT] = (StateNode(number), replace(tensor, saved=tensor.saved or saved_input_bytes(layer) > 0))
    for index, operator in enumerate(operators_of(layer)):
        node = OperatorNode(number, index)
        for port in operator.inputs:
            if port.tensor in made:
                source, tensor = made[port.tensor]
                yield Wire(source=source, target=node, tensor=tensor, port=port)
        made.update((tensor.name, (node, tensor)) for tensor in operator.outputs)


class Ties:
    """Which nodes choose together: the same operators of equal layers, and the states between equal pairs of layers.

    Layers are equal if what they take is, too.
    """

    def __init__(self, model: ModelProfile, *, tied: bool) -> None:
        self._tied = tied
        classes: dict[tuple[Layer, Tensor | None], int] = {}
        taken = [None, *(output_of(layer)[1] for layer in model.layers[:-1])]
        layers = (replace(layer, name="layer") for layer in model.layers)
        self._classes = [classes.setdefault(own, len(classes)) for own in zip(layers, taken, strict=True)]
        self._classes.append(len(classes))  # behind the last layer

    def key(self, node: Node) -> Hashable:
        """Equal for nodes that choose together."""
        if not self._tied:
            return node
        if isinstance(node, StateNode):
            return "state", self._classes[node.boundary - 1], self._classes[node.boundary]
        return "operator", self._classes[node.layer], node.index
