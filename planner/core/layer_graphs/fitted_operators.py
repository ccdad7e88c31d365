"""Operators of a layer whose counts were measured."""

from dataclasses import replace

from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import OUTPUT, Operator, Tensor


def with_operators_of(layer: Layer, known: Layer) -> Layer:
    """The layer with the operators of the same layer from elsewhere, each count in proportion to the layer's.

    Without operators where the weights differ, or where they count nothing of what the layer has.
    """
    if layer.params_bytes + layer.shared_params_bytes != known.params_bytes + known.shared_params_bytes:
        return layer
    counts = ("forward_flops", "saved_bytes", "output_bytes", "working_bytes")
    ratios = {name: _ratio(getattr(layer, name), getattr(known, name)) for name in counts}
    if None in ratios.values():
        return layer
    factors = {name: ratio or 0.0 for name, ratio in ratios.items()}
    return replace(layer, operators=tuple(_fitted(operator, factors) for operator in known.operators))


def _ratio(measured: float, known: float) -> float | None:
    if known:
        return measured / known
    return None if measured else 1.0


def _fitted(operator: Operator, factors: dict[str, float]) -> Operator:
    return replace(
        operator,
        outputs=tuple(_fitted_tensor(tensor, factors) for tensor in operator.outputs),
        forward_flops=operator.forward_flops * factors["forward_flops"],
        working_bytes=operator.working_bytes * factors["working_bytes"],
    )


def _fitted_tensor(tensor: Tensor, factors: dict[str, float]) -> Tensor:
    """A tensor that is neither saved nor returned keeps its size."""
    if tensor.name == OUTPUT:
        return replace(tensor, num_bytes=tensor.num_bytes * factors["output_bytes"])
    return replace(tensor, num_bytes=tensor.num_bytes * factors["saved_bytes"]) if tensor.saved else tensor
