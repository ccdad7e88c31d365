"""The cheapest strategies of a layer's operators, for each state of its input and each of its output.

A state of the tensor between two layers is a placement without partial sums. The operators are taken in order; what
has been decided is remembered for those operators only whose tensors are still to be taken, so the table over the
splits of these (the frontier) is all that is kept: a dynamic program over the graph of the layer, exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.operators import INPUT, OUTPUT, Operator
from stagecut.planner.core.strategy import LayerStrategy
from stagecut.planner.sharding.conversion_tables import all_placements, conversion_seconds, number_of
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.options import NUM_DIMS, Column, Options
from stagecut.planner.sharding.placements import PARTIAL, Placements

_INPUT = -1
"""Stands for the layer before among the makers of tensors."""


class Cost(IntEnum):
    """Costs of a layer on each device of the mesh; those of a stage are sums, from `LARGEST` on maxima."""

    FORWARD_S = 0
    BACKWARD_S = 1
    SYNC_S = 2
    """Collectives inside the mesh, once per iteration."""
    NUM_SUMMED = 3
    """Parameters whose gradients are still to be summed over replicas and pipelines."""
    NUM_UPDATED = 4
    WEIGHT_BYTES = 5
    GRADIENT_BYTES = 6
    STATE_BYTES = 7
    """Optimizer state, before replicas and pipelines divide it."""
    SAVED_BYTES = 8
    """Per micro-batch."""
    INPUT_BYTES = 9
    """Input of the layer, per micro-batch: all that is saved under recomputation."""
    WORKING_BYTES = 10
    LARGEST_SAVED_BYTES = 11


LARGEST = Cost.WORKING_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """What the cheapest strategies are the cheapest for: F + B + (sync + update) / M + price x bytes held."""

    num_microbatches: int
    """M."""
    sync_s_per_param: float
    """All-reduce over replicas and pipelines."""
    update_s_per_param: float
    num_holders: int
    """Replicas and pipelines that divide the optimizer state."""
    held_s_per_byte: float
    """Price of weights, gradients, state and the saved bytes of one micro-batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWork:
    """A layer on one micro-batch of the mesh."""

    operators: tuple[Operator, ...]
    samples: int
    input_bytes: float
    """Of one sample; 0 for the first layer, whose input is loaded where it is needed."""
    saved_input_bytes: float
    """Of one sample: what of its input the layer keeps for the backward, as it crosses the boundary."""
    forward_s: tuple[float, ...]
    """Seconds of each operator on a single device."""
    backward_s: tuple[float, ...]
    launch_s: float
    """Overhead per direction."""


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
        costs = [_costs(work, number, own) for number, own in enumerate(options)]
        priced = [_priced(rows, prices) for rows in costs]
        kept = [_best_storage(own, values) for own, values in zip(options, priced, strict=True)]
        self._kept, self._options = kept, tuple(options)
        self._costs = [rows[chosen] for rows, chosen in zip(costs, kept, strict=True)]
        self._values = [values[chosen] for values, chosen in zip(priced, kept, strict=True)]
        self._makers = {
            tensor.name: (number, index)
            for number, operator in enumerate(work.operators)
            for index, tensor in enumerate(operator.outputs)
        }
        self._before = self._first_states() if before is None else np.array([number_of(own, NUM_DIMS) for own in before])
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
        states = np.array([number_of(returned(placements), NUM_DIMS) for placements in left])
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


def _costs(work: LayerWork, number: int, options: Options) -> Floats:
    """Costs of an operator by strategy, shape (n, costs)."""
    columns = options.costs
    rows = np.zeros((len(columns), len(Cost)))
    part = columns[:, Column.PART]
    rows[:, Cost.FORWARD_S] = work.forward_s[number] * part + columns[:, Column.FORWARD_S]
    rows[:, Cost.BACKWARD_S] = work.backward_s[number] * part + columns[:, Column.BACKWARD_S]
    for name in ("SYNC_S", "NUM_SUMMED", "NUM_UPDATED", "WEIGHT_BYTES", "GRADIENT_BYTES", "STATE_BYTES"):
        rows[:, Cost[name]] = columns[:, Column[name]]
    rows[:, Cost.SAVED_BYTES] = work.samples * columns[:, Column.SAVED_BYTES]
    rows[:, Cost.WORKING_BYTES] = (
        work.samples * columns[:, Column.WORKING_BYTES] + columns[:, Column.GATHERED_BYTES]
    )
    return rows


def _priced(rows: Floats, prices: Prices) -> Floats:
    """What is minimised, shape (n,)."""
    once_s = (
        rows[:, Cost.SYNC_S]
        + rows[:, Cost.NUM_SUMMED] * prices.sync_s_per_param
        + rows[:, Cost.NUM_UPDATED] * prices.update_s_per_param
    )
    held_bytes = (
        rows[:, Cost.WEIGHT_BYTES]
        + rows[:, Cost.GRADIENT_BYTES]
        + rows[:, Cost.STATE_BYTES] / prices.num_holders
        + rows[:, Cost.SAVED_BYTES]
    )
    values: Floats = (
        rows[:, Cost.FORWARD_S]
        + rows[:, Cost.BACKWARD_S]
        + once_s / prices.num_microbatches
        + prices.held_s_per_byte * held_bytes
    )
    return values


def _best_storage(options: Options, values: Floats) -> Ints:
    """The cheapest way to store the weights for each way to divide the loop: it concerns no other operator."""
    order = np.lexsort((values, options.groups))
    first = np.flatnonzero(np.diff(options.groups[order], prepend=-1))
    return order[first]
