"""The cheapest strategies of a layer's operators, for each state of its input and each of its output.

A state of the tensor between two layers is a placement without partial sums. The operators are taken in order; what
has been decided is remembered for those operators only whose tensors are still to be taken, so the table over the
splits of these (the frontier) is all that is kept: a dynamic program over the graph of the layer, exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.strategy import LayerStrategy
from stagecut.planner.sharding.layer_costs import Cost, LayerWork, Prices, best_storage, priced, strategy_costs
from stagecut.planner.sharding.layer_edges import LAYER_BEFORE, LayerEdges
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.options import Options
from stagecut.planner.sharding.placements import Placements


@dataclass(frozen=True, kw_only=True)
class LayerTable:
    """The cheapest strategies from each of the states before the layer to each of those behind it, at some prices."""

    states: tuple[Placements, ...]
    """Behind the layer."""
    value_s: Floats
    """What is minimised, shape (prices, states before, states behind); infinite where there is no way."""
    costs: Floats
    """Shape (prices, states before, states behind, costs)."""
    options: tuple[Options, ...]
    choices: tuple[Ints, ...]
    """For each operator the index of its strategy, shape (prices, states before, states behind)."""

    def strategy(self, price: int, before: int, behind: int) -> LayerStrategy:
        """The strategies at a price between two states, all of them indices."""
        chosen = (int(choice[price, before, behind]) for choice in self.choices)
        return LayerStrategy(
            operators=tuple(own.strategies[index] for own, index in zip(self.options, chosen, strict=True))
        )


def layer_table(
    mesh: Mesh,
    work: LayerWork,
    options: Sequence[Options],
    *,
    before: tuple[Placements, ...] | None,
    prices: Sequence[Prices],
) -> LayerTable:
    """The table of a layer; `options` are the strategies of its operators, `before` the states of its input.

    None stands for the first layer of a stage: its input comes as its first operator takes it.
    """
    ways = [own.take(np.flatnonzero(np.diff(own.groups, prepend=-1))) for own in options]
    return _Program(work, options, LayerEdges(mesh, work, ways, before), prices).table()


class _Program:
    """The dynamic program; its arrays have one row per price, and one axis per operator of the frontier."""

    def __init__(
        self, work: LayerWork, options: Sequence[Options], edges: LayerEdges, prices: Sequence[Prices]
    ) -> None:
        self._work, self._edges, self._options, self._prices = work, edges, tuple(options), prices
        self._row = np.arange(len(prices))
        costs = [strategy_costs(work, number, own) for number, own in enumerate(options)]
        values = [np.array([priced(rows, own) for own in prices]) for rows in costs]
        # Storage concerns no other operator: it is chosen first, for every way to divide the loop.
        self._kept = [
            np.array([best_storage(own, value) for value in value_s])
            for own, value_s in zip(options, values, strict=True)
        ]
        self._costs = [rows[kept] for rows, kept in zip(costs, self._kept, strict=True)]
        self._values = [own[self._row[:, None], kept] for own, kept in zip(values, self._kept, strict=True)]

    def table(self) -> LayerTable:
        edges, (rows, states) = self._edges, self._axes
        value, history = self._walk()
        value = value + edges.returns_s.sum(axis=0)
        groups = [np.flatnonzero(edges.state_of == number) for number in range(len(edges.states))]
        ends = np.stack([group[value[..., group].argmin(axis=-1)] for group in groups], axis=-1)
        choices = {LAYER_BEFORE: states, edges.last: ends}
        for operator, others, best in reversed(history):
            choices[operator] = best[rows, *(choices[other] for other in others)]
        costs = self._sums(choices)
        return LayerTable(
            states=edges.states,
            value_s=value[rows, states, ends] + 2 * self._work.launch_s,
            costs=costs,
            options=self._options,
            choices=tuple(
                np.broadcast_to(own[rows, choices[number]], ends.shape) for number, own in enumerate(self._kept)
            ),
        )

    @property
    def _axes(self) -> tuple[Ints, Ints]:
        """Indices of the prices and of the states before, along their axes of three."""
        return self._row[:, None, None], np.arange(len(self._edges.parts_before))[:, None]

    def _walk(self) -> tuple[Floats, list[tuple[int, list[int], Ints]]]:
        """Least values by price, state before and choice of the last operator, and how each other was decided."""
        saved_bytes = self._work.samples * self._work.saved_input_bytes / self._edges.parts_before
        value: Floats = np.array([own.held_s_per_byte * saved_bytes for own in self._prices])
        axes, history = [LAYER_BEFORE], list[tuple[int, list[int], Ints]]()
        for number, own_s in enumerate(self._values):
            value, axes = value[..., None] + own_s.reshape(len(own_s), *[1] * len(axes), -1), [*axes, number]
            for edge in self._edges.inside:
                if edge.taker == number:
                    shape = [1] * len(axes)
                    shape[axes.index(edge.maker)], shape[-1] = edge.forward_s.shape
                    value = value + (edge.forward_s + edge.backward_s).reshape(shape)
            for done in [own for own in axes if self._edges.last_use(own) == number]:
                axis = axes.index(done) + 1
                best: Ints = value.argmin(axis=axis)
                value = value.min(axis=axis)
                axes = [own for own in axes if own != done]
                history.append((done, axes, best))
        return value, history

    def _sums(self, choices: dict[int, Ints]) -> Floats:
        """Costs of the chosen strategies, shape (prices, states before, states behind, costs)."""
        work, edges, (rows, _) = self._work, self._edges, self._axes
        own = np.array(np.broadcast_arrays(*(each[rows, choices[n]] for n, each in enumerate(self._costs))))
        total: Floats = own.sum(axis=0)
        total[..., Cost.WORKING_BYTES] = own[..., Cost.WORKING_BYTES].max(axis=0)
        for edge in edges.inside:
            total[..., Cost.FORWARD_S] += edge.forward_s[choices[edge.maker], choices[edge.taker]]
            total[..., Cost.BACKWARD_S] += edge.backward_s[choices[edge.maker], choices[edge.taker]]
        forward_s, backward_s = edges.returns_s
        samples = (work.samples / edges.parts_before)[:, None]
        total[..., Cost.FORWARD_S] += forward_s[choices[edges.last]] + work.launch_s
        total[..., Cost.BACKWARD_S] += backward_s[choices[edges.last]] + work.launch_s
        total[..., Cost.INPUT_BYTES] = samples * work.input_bytes
        total[..., Cost.SAVED_BYTES] += samples * work.saved_input_bytes
        total[..., Cost.LARGEST_SAVED_BYTES] = total[..., Cost.SAVED_BYTES]
        return total
