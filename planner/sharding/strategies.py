"""The legal strategies of an operator, and the placements of its tensors that follow from each.

With the loop of an operator divided along dimension d over an axis:

| tensor | has d | has not |
|---|---|---|
| input, weight | Shard | Replicate; its gradient Partial |
| output | Shard | Partial; its gradient Replicate |

A gradient of a sharded tensor is sharded alike. Where all devices compute the same, everything is Replicate. Where
each computes with its own partial sums, inputs and outputs are Partial, and their gradients Replicate.
"""

import itertools
import math
from collections.abc import Iterator

from stagecut.planner.core.operators.operators import Operator, Port, Tensor, Weight
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, AxisPlacement, Placements, Shard


def strategies(operator: Operator, sizes: tuple[int, ...], *, samples: int) -> tuple[Strategy, ...]:
    """All strategies on a mesh of these sizes, with so many samples in a micro-batch of the mesh.

    A dimension can be divided over several axes if the product of their sizes divides it; axes of one device divide
    nothing. Weights can be stored in parts if there is an axis over which their gradients are summed.
    """
    found = []
    for splits in itertools.product(*(_splits(operator, size) for size in sizes)):
        if not _divides(operator, splits, sizes, samples):
            continue
        summed = any(PARTIAL in weight_gradient_placements(weight, splits) for weight in operator.weights)
        storages = tuple(WeightStorage) if summed else (WeightStorage.REPLICATED,)
        found += [Strategy(splits=splits, storage=storage) for storage in storages]
    return tuple(found)


def _splits(operator: Operator, size: int) -> Iterator[str]:
    yield WHOLE_LOOP
    if size > 1:
        yield from (split.dim for split in operator.splits)
        if operator.passes_partial:
            yield PARTIAL_SUMS


def _divides(operator: Operator, splits: tuple[str, ...], sizes: tuple[int, ...], samples: int) -> bool:
    for split in operator.splits:
        parts = math.prod(size for size, own in zip(sizes, splits, strict=True) if own == split.dim)
        if (samples if split.size is None else split.size) % parts:
            return False
    return True


def input_placements(port: Port, splits: tuple[str, ...]) -> Placements:
    """Where an operator needs an input."""
    return tuple(PARTIAL if split == PARTIAL_SUMS else _shard(port.dims, split, REPLICATE) for split in splits)


def input_gradient_placements(port: Port, splits: tuple[str, ...]) -> Placements:
    """Where an operator leaves the gradient of an input."""
    return _gradients(port.dims, splits)


def output_placements(tensor: Tensor, splits: tuple[str, ...]) -> Placements:
    """Where an operator leaves an output."""
    return tuple(REPLICATE if split == WHOLE_LOOP else _shard(tensor.dims, split, PARTIAL) for split in splits)


def output_gradient_placements(tensor: Tensor, splits: tuple[str, ...]) -> Placements:
    """Where an operator needs the gradient of an output."""
    return tuple(_shard(tensor.dims, split, REPLICATE) for split in splits)


def weight_placements(weight: Weight, splits: tuple[str, ...]) -> Placements:
    """Where an operator needs a weight."""
    return tuple(_shard(weight.dims, split, REPLICATE) for split in splits)


def weight_gradient_placements(weight: Weight, splits: tuple[str, ...]) -> Placements:
    """Where an operator leaves the gradient of a weight."""
    return tuple(
        PARTIAL if split == PARTIAL_SUMS else own
        for split, own in zip(splits, _gradients(weight.dims, splits), strict=True)
    )


def num_parts(splits: tuple[str, ...], sizes: tuple[int, ...]) -> int:
    """Into how many parts the loop is divided; partial sums are computed with on every device."""
    divided = (size for size, own in zip(sizes, splits, strict=True) if own not in (WHOLE_LOOP, PARTIAL_SUMS))
    return math.prod(divided)


def _gradients(dims: tuple[str, ...], splits: tuple[str, ...]) -> Placements:
    undivided = (WHOLE_LOOP, PARTIAL_SUMS)
    return tuple(REPLICATE if split in undivided else _shard(dims, split, PARTIAL) for split in splits)


def _shard(dims: tuple[str, ...], split: str, otherwise: AxisPlacement) -> AxisPlacement:
    return Shard(dims.index(split)) if split in dims else otherwise
