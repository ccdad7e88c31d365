"""Seconds of the conversions of a layer's tensors, for every way to divide the operators at both ends."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.operators import INPUT, OUTPUT
from stagecut.planner.sharding.conversion_tables import all_placements, conversion_seconds, number_of
from stagecut.planner.sharding.layer_costs import LayerWork
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.options import NUM_DIMS, Ends, Options
from stagecut.planner.sharding.placements import PARTIAL, Placements

LAYER_BEFORE = -1
"""Stands for the layer before among the makers of tensors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge:
    """A tensor on its way from its maker to an operator, both by number."""

    maker: int
    taker: int
    forward_s: Floats
    """Shape (ways to divide the maker, ways to divide the taker)."""
    backward_s: Floats


class LayerEdges:
    """The tensors between the operators of a layer, and those that it takes and returns.

    Parameters
    ----------
    options
        Ways to divide each operator, the storage of weights left open.
    before
        States of the layer's input; None for the first layer of a stage, whose input comes as its first operator
        takes it.
    """

    def __init__(
        self, mesh: Mesh, work: LayerWork, options: Sequence[Options], before: tuple[Placements, ...] | None
    ) -> None:
        self._mesh, self._work, self._options, self._starts = mesh, work, options, before is None
        self._makers = {
            tensor.name: (number, index)
            for number, operator in enumerate(work.operators)
            for index, tensor in enumerate(operator.outputs)
        }
        self._before = self._first_states() if before is None else _numbers(before)
        self.parts_before: Ints = np.array([mesh.parts(own) for own in self._named(self._before)])
        """Into how many parts each state divides the input."""
        self.last, self._output = self._makers[OUTPUT]
        left = self._named(self._returned_ends.placements)
        returns = [returned(own) for own in left]
        self.states = tuple(dict.fromkeys(returns))
        """Behind the layer."""
        self.state_of: Ints = np.array([self.states.index(state) for state in returns])
        """For every way to divide the operator that makes the output, the state that it is returned in."""

    @cached_property
    def inside(self) -> tuple[Edge, ...]:
        """Of the tensors that operators take."""
        return tuple(
            self._edge(port.tensor, taker, number)
            for taker, operator in enumerate(self._work.operators)
            for number, port in enumerate(operator.inputs)
        )

    @cached_property
    def returns_s(self) -> Floats:
        """Seconds, forward and backward, until the output is as it is returned; shape (2, ways to divide its maker)."""
        ends, states = self._returned_ends, _numbers(self.states)[self.state_of]
        seconds = self._seconds(self._work.operators[self.last].outputs[self._output].num_bytes)
        return np.stack((seconds[ends.placements, states], seconds[states, ends.gradients]))

    def last_use(self, maker: int) -> int:
        """The operator behind which the choice of a maker matters no more; none for input and output."""
        if maker in (LAYER_BEFORE, self.last):
            return len(self._work.operators)
        return max((edge.taker for edge in self.inside if edge.maker == maker), default=maker)

    @property
    def _returned_ends(self) -> Ends:
        return self._options[self.last].makes[self._output]

    @cached_property
    def _first_port(self) -> tuple[int, int] | None:
        """Operator and port that take the layer's input first."""
        ports = (
            (taker, number)
            for taker, operator in enumerate(self._work.operators)
            for number, port in enumerate(operator.inputs)
            if port.tensor == INPUT
        )
        return next(ports, None)

    def _first_states(self) -> Ints:
        """States of the input of a stage; number 0 stands for whole tensors everywhere."""
        if self._first_port is None:
            return np.zeros(1, dtype=np.int64)
        taker, port = self._first_port
        taken = np.unique(self._options[taker].takes[port].placements)
        return np.array([number for number, own in zip(taken, self._named(taken), strict=True) if PARTIAL not in own])

    def _edge(self, tensor: str, taker: int, port: int) -> Edge:
        if tensor == INPUT:
            maker, num_bytes = LAYER_BEFORE, self._work.input_bytes
            made = Ends(placements=self._before, gradients=self._before)
        else:
            maker, index = self._makers[tensor]
            num_bytes = self._work.operators[maker].outputs[index].num_bytes
            made = self._options[maker].makes[index]
        seconds, taken = self._seconds(num_bytes), self._options[taker].takes[port]
        forward_s = seconds[made.placements[:, None], taken.placements]
        if self._starts and (taker, port) == self._first_port:
            forward_s = np.where(made.placements[:, None] == taken.placements, forward_s, np.inf)
        backward_s = seconds[taken.gradients, made.gradients[:, None]]
        return Edge(maker=maker, taker=taker, forward_s=forward_s, backward_s=backward_s)

    def _seconds(self, num_bytes: float) -> Floats:
        return conversion_seconds(self._mesh, num_dims=NUM_DIMS, num_bytes=self._work.samples * num_bytes)

    def _named(self, numbers: Ints) -> list[Placements]:
        every = all_placements(len(self._mesh.sizes), NUM_DIMS)
        return [every[number] for number in numbers]


def _numbers(states: tuple[Placements, ...]) -> Ints:
    return np.array([number_of(state, NUM_DIMS) for state in states])
