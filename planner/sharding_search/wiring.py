"""Which operator takes which tensor from which: the model as a graph, before anything is divided."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Port, Tensor
from stagecut.planner.sharding.layers import saved_input_bytes


@dataclass(frozen=True, slots=True)
class OperatorNode:
    """An operator of a layer."""

    layer: int
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Wire:
    """A tensor on its way from where it is made to where it is taken."""

    source: OperatorNode
    target: OperatorNode
    tensor: Tensor
    port: Port | None = None
    """None: a skip edge, on its way to where the target returns its own output."""
    target_tensor: Tensor | None = None
    """That output."""

    @property
    def crosses(self) -> bool:
        """Whether it comes over a boundary, in the placements in which its layer returned it."""
        return self.source.layer != self.target.layer


def output_of(layer: Layer) -> tuple[int, Tensor]:
    """The operator that makes what a layer returns, and that tensor."""
    return next(
        (index, tensor)
        for index, operator in enumerate(operators_of(layer))
        for tensor in operator.outputs
        if tensor.name == OUTPUT
    )


def maker_of(model: ModelProfile, number: int) -> tuple[OperatorNode, Tensor]:
    """The operator that makes what a layer returns, and that tensor."""
    index, tensor = output_of(model.layers[number])
    return OperatorNode(number, index), tensor


def wires(model: ModelProfile) -> Iterator[Wire]:
    """All tensors on their ways, layer by layer.

    What the first layer takes is loaded where it is needed. A skip edge leads from what its source returns to where
    the layer before its target returns its output.
    """
    for number in range(model.num_layers):
        yield from _taken_in(model, number)
    for edge in model.skip_edges:
        source, output = maker_of(model, edge.source)
        skipped = Tensor(name="skip", dims=output.dims, num_bytes=edge.num_bytes)
        for target in edge.targets:
            if target > edge.source + 1:
                before, tensor = maker_of(model, target - 1)
                yield Wire(source=source, target=before, tensor=skipped, target_tensor=tensor)


def _taken_in(model: ModelProfile, number: int) -> Iterator[Wire]:
    layer, made = model.layers[number], dict[str, tuple[OperatorNode, Tensor]]()
    if number:
        source, tensor = maker_of(model, number - 1)
        made[INPUT] = source, replace(tensor, saved=tensor.saved or saved_input_bytes(layer) > 0)
    for index, operator in enumerate(operators_of(layer)):
        node = OperatorNode(number, index)
        for port in operator.inputs:
            if port.tensor in made:
                source, tensor = made[port.tensor]
                needed = tensor.saved and operator.needs_inputs
                yield Wire(source=source, target=node, tensor=replace(tensor, saved=needed), port=port)
        made.update((tensor.name, (node, tensor)) for tensor in operator.outputs)


class Ties:
    """Which operators choose together: those at the same places of equal layers.

    Layers are equal if what they take is, too.
    """

    def __init__(self, model: ModelProfile, *, tied: bool) -> None:
        self._tied = tied
        classes: dict[tuple[Layer, Tensor | None], int] = {}
        taken = [None, *(output_of(layer)[1] for layer in model.layers[:-1])]
        layers = (replace(layer, name="layer") for layer in model.layers)
        self._classes = [classes.setdefault(own, len(classes)) for own in zip(layers, taken, strict=True)]

    def key(self, node: OperatorNode) -> tuple[int, int]:
        """Equal for nodes that choose together."""
        return (self._classes[node.layer] if self._tied else node.layer), node.index
