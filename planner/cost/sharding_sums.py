"""Costs of one stage whose layers are divided in a stated way, operator by operator."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Operator
from stagecut.planner.core.operators.strategy import LayerStrategy, StageSharding, Strategy
from stagecut.planner.sharding.edges import EdgeCosts, TensorEnds, edge_costs
from stagecut.planner.sharding.layer_costs import LARGEST, Cost, LayerWork
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.operator_costs import OperatorCosts, operator_costs
from stagecut.planner.sharding.placements import REPLICATE, Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
)


def sharding_sums(
    works: Sequence[LayerWork], sharding: StageSharding, mesh: Mesh, *, optimizer: Optimizer, element_bytes: int
) -> Floats:
    """Costs of the layers of a stage on each device, shape (costs,)."""
    total = np.zeros(len(Cost))
    state = _first_state(works[0], sharding.layers[0], len(mesh.sizes))
    for work, strategy in zip(works, sharding.layers, strict=True):
        layer = _Layer(work=work, strategy=strategy, mesh=mesh, state=state)
        own, state = layer.costs(optimizer, element_bytes), layer.returns
        total[:LARGEST] += own[:LARGEST]
        total[LARGEST:] = np.maximum(total[LARGEST:], own[LARGEST:])
    return total


def _first_state(work: LayerWork, strategy: LayerStrategy, num_axes: int) -> Placements:
    """Where the first operator that takes the input of a stage needs it."""
    taken = (
        input_placements(port, own.splits)
        for operator, own in zip(work.operators, strategy.operators, strict=True)
        for port in operator.inputs
        if port.tensor == INPUT
    )
    return next(taken, (REPLICATE,) * num_axes)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """A tensor where it is made."""

    num_bytes: float
    """Per micro-batch."""
    placements: Placements
    gradients: Placements


@dataclass(frozen=True, slots=True, kw_only=True)
class _Layer:
    work: LayerWork
    strategy: LayerStrategy
    mesh: Mesh
    state: Placements
    """Of its input."""

    def costs(self, optimizer: Optimizer, element_bytes: int) -> Floats:
        """Costs of the layer, shape (costs,)."""
        work, row = self.work, np.zeros(len(Cost))
        for number, (operator, strategy) in enumerate(self._operators()):
            own = operator_costs(
                operator, strategy, self.mesh, samples=work.samples, optimizer=optimizer, element_bytes=element_bytes
            )
            _add(row, own, forward_s=work.forward_s[number], backward_s=work.backward_s[number])
        for edge in self._edges():
            row[Cost.FORWARD_S] += edge.forward.seconds
            row[Cost.BACKWARD_S] += edge.backward.seconds
        row[[Cost.FORWARD_S, Cost.BACKWARD_S]] += work.launch_s
        samples = work.samples / self.mesh.parts(self.state)
        row[Cost.SAVED_BYTES] += samples * work.saved_input_bytes
        row[Cost.INPUT_BYTES] = samples * work.input_bytes
        row[Cost.LARGEST_SAVED_BYTES] = row[Cost.SAVED_BYTES]
        return row

    @property
    def returns(self) -> Placements:
        """State of its output."""
        return returned(self._made()[OUTPUT].placements)

    def _operators(self) -> Iterator[tuple[Operator, Strategy]]:
        return zip(self.work.operators, self.strategy.operators, strict=True)

    def _made(self) -> dict[str, _Made]:
        num_bytes = self.work.samples * self.work.input_bytes
        made = {INPUT: _Made(num_bytes=num_bytes, placements=self.state, gradients=self.state)}
        for operator, strategy in self._operators():
            for tensor in operator.outputs:
                made[tensor.name] = _Made(
                    num_bytes=self.work.samples * tensor.num_bytes,
                    placements=output_placements(tensor, strategy.splits),
                    gradients=output_gradient_placements(tensor, strategy.splits),
                )
        return made

    def _edges(self) -> Iterator[EdgeCosts]:
        made = self._made()
        for operator, strategy in self._operators():
            for port in operator.inputs:
                taken = input_placements(port, strategy.splits)
                yield self._edge(made[port.tensor], taken, input_gradient_placements(port, strategy.splits))
        yield self._edge(made[OUTPUT], self.returns, self.returns)

    def _edge(self, made: _Made, taken: Placements, taken_gradient: Placements) -> EdgeCosts:
        ends = TensorEnds(
            made=made.placements, made_gradient=made.gradients, taken=taken, taken_gradient=taken_gradient
        )
        costs = edge_costs(self.mesh, ends, num_bytes=made.num_bytes, saved=False)
        if costs is None:
            words = [", ".join(map(str, placements)) for placements in (made.placements, taken)]
            raise BadInputError(f"sharding: nothing leads from placements ({words[0]}) to ({words[1]})")
        return costs


def _add(row: Floats, own: OperatorCosts, *, forward_s: float, backward_s: float) -> None:
    weights = own.weights
    row[Cost.FORWARD_S] += forward_s / own.parts + weights.forward.seconds
    row[Cost.BACKWARD_S] += backward_s / own.parts + weights.backward.seconds
    row[Cost.SYNC_S] += weights.sync.seconds
    row[Cost.NUM_SUMMED] += weights.num_summed
    row[Cost.NUM_UPDATED] += weights.num_updated
    row[Cost.WEIGHT_BYTES] += weights.weight_bytes
    row[Cost.GRADIENT_BYTES] += weights.gradient_bytes
    row[Cost.STATE_BYTES] += weights.optimizer_bytes
    row[Cost.SAVED_BYTES] += own.saved_bytes
    row[Cost.WORKING_BYTES] = max(row[Cost.WORKING_BYTES], own.working_bytes)
