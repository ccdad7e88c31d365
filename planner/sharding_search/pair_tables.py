"""What conversions cost for every pair of options at the two ends of a wire."""

from collections.abc import Sequence

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.operators import Tensor
from stagecut.planner.core.operators.strategy import Strategy
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.placements import Placements, Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
)
from stagecut.planner.sharding_search.wiring import Wire

End = tuple[Placements, Placements]
"""Of a tensor and of its gradient."""


def returned_in(tensor: Tensor, strategy: Strategy) -> Placements:
    """The placements in which a layer returns its output: see :func:`stagecut.planner.sharding.layers.returned`."""
    return returned(output_placements(tensor, strategy.splits))


def left(tensor: Tensor, strategy: Strategy) -> End:
    """Where an operator leaves a tensor, and where it needs the gradient."""
    return output_placements(tensor, strategy.splits), output_gradient_placements(tensor, strategy.splits)


def made(wire: Wire, strategy: Strategy) -> End:
    """Where a tensor is before its way, and where its gradient has to come."""
    if not wire.crosses:
        return left(wire.tensor, strategy)
    state = returned_in(wire.tensor, strategy)
    return state, state


def taken(wire: Wire, strategy: Strategy) -> End:
    """Where the target needs the tensor, and where it leaves the gradient."""
    if wire.port is not None:
        return input_placements(wire.port, strategy.splits), input_gradient_placements(wire.port, strategy.splits)
    assert wire.target_tensor is not None  # a skip edge
    state = returned_in(wire.target_tensor, strategy)
    return state, state


class PairTables:
    """Tables of conversions on one mesh."""

    def __init__(self, mesh: Mesh) -> None:
        self._mesh = mesh
        self._seconds: dict[tuple[float, Placements, Placements], float] = {}

    def returns(self, tensor: Tensor, options: Sequence[Strategy], *, samples: float) -> Floats:
        """Seconds of both directions from what an operator leaves to what its layer returns, (options,)."""
        num_bytes = samples * tensor.num_bytes
        ends = [(left(tensor, own), returned_in(tensor, own)) for own in options]
        return np.array([self._both(start, (state, state), num_bytes) for start, state in ends])

    def table(self, wire: Wire, sources: Sequence[Strategy], targets: Sequence[Strategy], *, samples: float) -> Floats:
        """Seconds of both directions for a micro-batch, (sources, targets); infinite where there is no way."""
        from_ends, row = _distinct([made(wire, option) for option in sources])
        to_ends, column = _distinct([taken(wire, option) for option in targets])
        num_bytes = samples * wire.tensor.num_bytes
        distinct = np.array([[self._both(start, end, num_bytes) for end in to_ends] for start in from_ends])
        return distinct[np.ix_(row, column)]

    def _both(self, start: End, end: End, num_bytes: float) -> float:
        return self._one(start[0], end[0], num_bytes) + self._one(end[1], start[1], num_bytes)

    def _one(self, source: Placements, target: Placements, num_bytes: float) -> float:
        """What a conversion costs does not depend on which dimensions are sharded, but on which of them are equal.

        Nothing costs nothing.
        """
        names: dict[int, int] = {}
        key = (num_bytes, _renamed(source, names), _renamed(target, names))
        if key not in self._seconds:
            steps = conversion(self._mesh, key[1], key[2], num_bytes=num_bytes)
            seconds = sum(step.seconds(self._mesh) for step in steps or ()) if num_bytes > 0 else 0.0
            self._seconds[key] = np.inf if steps is None else seconds
        return self._seconds[key]


def _renamed(placements: Placements, names: dict[int, int]) -> Placements:
    """Dimensions numbered in the order in which they appear."""
    return tuple(Shard(names.setdefault(own.dim, len(names))) if isinstance(own, Shard) else own for own in placements)


def _distinct(ends: Sequence[End]) -> tuple[list[End], list[int]]:
    """Each end once, and which of them every option has."""
    numbers: dict[End, int] = {}
    index = [numbers.setdefault(end, len(numbers)) for end in ends]
    return list(numbers), index
