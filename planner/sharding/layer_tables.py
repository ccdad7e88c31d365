"""The cheapest strategies of a layer's operators, for each state of its input and each of its output.

A state of the tensor between two layers is a placement without partial sums. The operators are taken in order; what
has been decided is remembered for those operators only whose tensors are still to be taken, so the table over the
splits of these (the frontier) is all that is kept: a dynamic program over the graph of the layer, exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.operators import INPUT, OUTPUT
from stagecut.planner.core.strategy import LayerStrategy
from stagecut.planner.sharding.conversion_tables import all_placements, conversion_seconds, number_of
from stagecut.planner.sharding.layer_costs import Cost, LayerWork, Prices, best_storage, priced, strategy_costs
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.options import NUM_DIMS, Options
from stagecut.planner.sharding.placements import PARTIAL, Placements

_INPUT = -1
"""Stands for the layer before among the makers of tensors."""


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """The cheapest strategies from each of the states before the layer to each of those behind it."""

    states: tuple[Placements, ...]
    """Behind the layer."""
    value_s: Floats
    """What is minimised, shape (states before, states behind); infinite where there is no way."""
    costs: Floats
    """Shape (states before, states behind, costs)."""
    options: tuple[Options, ...]
    choices: tuple[Ints, ...]
    """For each operator the index of its strategy, shape (states before, states behind)."""

    def strategy(self, before: int, behind: int) -> LayerStrategy:
        """The strategies between two states, both indices."""
        chosen = (int(choice[before, behind]) for choice in self.choices)
        return LayerStrategy(
            operators=tuple(own.strategies[index] for own, index in zip(self.options, chosen, strict=True))
        )


def layer_table(
    mesh: Mesh, work: LayerWork, options: Sequence[Options], *, before: tuple[Placements, ...] | None, prices: Prices
) -> LayerTable:
    """The table of a layer; `options` are the strategies of its operators, `before` the states of its input.

    None stands for the first layer of a stage: its input comes as its first operator takes it.
    """
    return _Program(mesh, work, options, before, prices).table()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Edge:
    """A tensor on its way from its maker to an operator."""

    maker: int
    taker: int
    forward_s: Floats
    """By the choice of either end."""
    backward_s: Floats


class _Program:
    def __init__(
        self,
        mesh: Mesh,
        work: LayerWork,
        options: Sequence[Options],
        before: tuple[Placements, ...] | None,
        prices: Prices,
    ) -> None:
        self._mesh, self._work, self._starts = mesh, work, before is None
        costs = [strategy_costs(work, number, own) for number, own in enumerate(options)]
        values = [priced(rows, prices) for rows in costs]
        kept = [best_storage(own, own_s) for own, own_s in zip(options, values, strict=True)]
        self._kept, self._options = kept, tuple(options)
        self._costs = [rows[chosen] for rows, chosen in zip(costs, kept, strict=True)]
        self._values = [own[chosen] for own, chosen in zip(values, kept, strict=True)]
        self._makers = {
            tensor.name: (number, index)
            for number, operator in enumerate(work.operators)
            for index, tensor in enumerate(operator.outputs)
        }
        self._before = (
            self._first_states() if before is None else np.array([number_of(own, NUM_DIMS) for own in before])
        )
        self._parts = np.array([mesh.parts(own) for own in self._named(self._before)])
        held_bytes = prices.held_s_per_byte * work.samples * work.saved_input_bytes
        self._before_s = held_bytes / self._parts

    def table(self) -> LayerTable:
        work = self._work
        value, history = self._walk()
        last, index = self._makers[OUTPUT]
        returns_s = self._returns(last, index)
        value = value + returns_s.sum(axis=0)
        left = self._options[last].makes[index].placements[self._kept[last]]
        behind = [returned(own) for own in self._named(left)]
        states = tuple(dict.fromkeys(behind))
        numbers = np.array([states.index(state) for state in behind])
        groups = [np.flatnonzero(numbers == number) for number in range(len(states))]
        ends = np.stack([group[value[:, group].argmin(axis=1)] for group in groups], axis=1)
        choices = {_INPUT: np.arange(len(self._before))[:, None], last: ends}
        for operator, others, best in reversed(history):
            choices[operator] = best[tuple(choices[other] for other in others)]
        chosen = [np.broadcast_to(choices[number], ends.shape) for number in range(len(work.operators))]
        costs = self._sums(chosen)
        costs[..., Cost.FORWARD_S] += returns_s[0][ends]
        costs[..., Cost.BACKWARD_S] += returns_s[1][ends]
        return LayerTable(
            states=states,
            value_s=np.take_along_axis(value, ends, axis=1) + 2 * work.launch_s,
            costs=costs,
            options=self._options,
            choices=tuple(own[choice] for own, choice in zip(self._kept, chosen, strict=True)),
        )

    def _walk(self) -> tuple[Floats, list[tuple[int, list[int], Ints]]]:
        """Least values by state before and choice of the last operator, and how each other one was decided."""
        value, axes, history = self._before_s, [_INPUT], []
        for number in range(len(self._work.operators)):
            value, axes = value[..., None] + self._values[number], [*axes, number]
            for edge in self._edges:
                if edge.taker == number:
                    shape = [1] * len(axes)
                    shape[axes.index(edge.maker)], shape[-1] = edge.forward_s.shape
                    value = value + (edge.forward_s + edge.backward_s).reshape(shape)
            for done in [own for own in axes if self._last_use(own) == number]:
                axis = axes.index(done)
                best: Ints = value.argmin(axis=axis)
                value = value.min(axis=axis)
                axes = [own for own in axes if own != done]
                history.append((done, axes, best))
        return value, history

    def _last_use(self, maker: int) -> int:
        """The operator behind which the choice of a maker matters no more; none for input and output."""
        if maker in (_INPUT, self._makers[OUTPUT][0]):
            return len(self._work.operators)
        return max((edge.taker for edge in self._edges if edge.maker == maker), default=maker)

    @cached_property
    def _edges(self) -> list[_Edge]:
        return [
            self._edge(tensor=port.tensor, taker=taker, port=number)
            for taker, operator in enumerate(self._work.operators)
            for number, port in enumerate(operator.inputs)
        ]

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
        """States of the input of a stage."""
        if self._first_port is None:
            return np.zeros(1, dtype=np.int64)
        taker, port = self._first_port
        taken = np.unique(self._options[taker].takes[port].placements[self._kept[taker]])
        whole = [number for number, own in zip(taken, self._named(taken), strict=True) if PARTIAL not in own]
        return np.array(whole)

    def _named(self, numbers: Ints) -> list[Placements]:
        every = all_placements(len(self._mesh.sizes), NUM_DIMS)
        return [every[number] for number in numbers]

    def _edge(self, *, tensor: str, taker: int, port: int) -> _Edge:
        if tensor == INPUT:
            maker, num_bytes = _INPUT, self._work.input_bytes
            made = made_gradients = self._before
        else:
            maker, index = self._makers[tensor]
            num_bytes = self._work.operators[maker].outputs[index].num_bytes
            ends = self._options[maker].makes[index]
            made, made_gradients = ends.placements[self._kept[maker]], ends.gradients[self._kept[maker]]
        seconds = self._seconds(num_bytes)
        taken = self._options[taker].takes[port]
        chosen = self._kept[taker]
        forward_s = seconds[made[:, None], taken.placements[chosen]]
        if self._starts and (taker, port) == self._first_port:
            forward_s = np.where(made[:, None] == taken.placements[chosen], forward_s, np.inf)
        return _Edge(
            maker=maker,
            taker=taker,
            forward_s=forward_s,
            backward_s=seconds[taken.gradients[chosen], made_gradients[:, None]],
        )

    def _returns(self, last: int, index: int) -> Floats:
        """Seconds, forward and backward, between the operator that makes the output and the states behind."""
        own, chosen = self._options[last], self._kept[last]
        ends = own.makes[index]
        left = self._named(ends.placements[chosen])
        states = _numbers(tuple(returned(placements) for placements in left))
        seconds = self._seconds(self._work.operators[last].outputs[index].num_bytes)
        return np.stack((seconds[ends.placements[chosen], states], seconds[states, ends.gradients[chosen]]))

    def _seconds(self, num_bytes: float) -> Floats:
        return conversion_seconds(self._mesh, num_dims=NUM_DIMS, num_bytes=self._work.samples * num_bytes)

    def _sums(self, chosen: list[Ints]) -> Floats:
        """Costs of the chosen strategies, shape (states before, states behind, costs)."""
        rows = [costs[choice] for costs, choice in zip(self._costs, chosen, strict=True)]
        total: Floats = np.sum(rows, axis=0)
        total[..., Cost.WORKING_BYTES] = np.max([row[..., Cost.WORKING_BYTES] for row in rows], axis=0)
        before = np.arange(len(self._before))[:, None]
        for edge in self._edges:
            maker = before if edge.maker == _INPUT else chosen[edge.maker]
            total[..., Cost.FORWARD_S] += edge.forward_s[maker, chosen[edge.taker]]
            total[..., Cost.BACKWARD_S] += edge.backward_s[maker, chosen[edge.taker]]
        samples = self._work.samples / self._parts
        total[..., Cost.INPUT_BYTES] = (samples * self._work.input_bytes)[:, None]
        total[..., Cost.SAVED_BYTES] += (samples * self._work.saved_input_bytes)[:, None]
        total[..., Cost.LARGEST_SAVED_BYTES] = total[..., Cost.SAVED_BYTES]
        total[..., [Cost.FORWARD_S, Cost.BACKWARD_S]] += self._work.launch_s
        return total


def _numbers(states: tuple[Placements, ...]) -> Ints:
    return np.array([number_of(state, NUM_DIMS) for state in states])
