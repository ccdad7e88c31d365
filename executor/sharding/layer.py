"""A layer whose operators are divided over a mesh."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stagecut.executor.play.stage import LayerState, as_state
from stagecut.executor.sharding.calls import Call, Way
from stagecut.executor.sharding.place import MeshPlace
from stagecut.executor.sharding.weights import Use
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.planner.core.operators.operators import INPUT, Operator, Port
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy
from stagecut.planner.sharding.edges import TensorEnds
from stagecut.planner.sharding.placements import PARTIAL, Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedOperator:
    """An operator, what it runs, and how it is divided."""

    operator: Operator
    strategy: Strategy
    module: OperatorModule
    weights: Mapping[str, Use]
    """By name of the parameter in the layer."""

    @property
    def ports(self) -> tuple[Port, ...]:
        """All that it takes."""
        return (*self.operator.inputs, *self.module.also)

    def part(self, place: MeshPlace) -> LoopPart:
        """What this rank runs of it."""
        indices: dict[str, tuple[int, int]] = {}
        adds_once = True
        for axis, split in enumerate(self.strategy.splits):
            own, size = place.coordinate(axis), place.sizes[axis]
            summed = split != WHOLE_LOOP and split not in self.operator.outputs[0].dims
            adds_once = adds_once and not (summed and own > 0)
            if split not in (WHOLE_LOOP, PARTIAL_SUMS):
                index, parts = indices.get(split, (0, 1))
                indices[split] = (index * size + own, parts * size)
        return LoopPart(indices=indices, adds_once=adds_once)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Made:
    """Tensors that travel together, and where this rank's parts of them are."""

    tensors: LayerState
    placements: Placements
    gradients: Placements
    """Where their maker needs the gradients."""
    saved: bool
    are_rows: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """A tensor that a layer returns."""

    tensor: str
    taken: Placements
    """Where it is taken."""
    gradient: Placements
    """Where its gradient comes from."""


class ShardedLayer:
    """One layer on one rank.

    Parameters
    ----------
    before
        Placements of what the layer takes.
    again
        Whether what is gathered is gathered again for the backward; otherwise it is kept until then.
    """

    def __init__(
        self,
        module: nn.Module,
        operators: Sequence[DividedOperator],
        place: MeshPlace,
        *,
        before: Placements,
        returns: Sequence[Returned],
        again: bool,
    ) -> None:
        self._runner = _Runner(module)
        self._operators, self._place, self._again = operators, place, again
        self._before, self._returns = before, returns

    def __call__(self, state: LayerState) -> LayerState:
        """The rank's part of what the layer returns, from its part of what the layer takes."""
        made = {INPUT: _Made(tensors=state, placements=self._before, gradients=self._before, saved=True)}
        for divided in self._operators:
            made |= self._outputs(divided, made)
        return tuple(tensor for own in self._returns for tensor in self._left(made[own.tensor], own))

    def _left(self, made: _Made, returned: Returned) -> LayerState:
        way = _way(made, returned.taken, returned.gradient, saved=False)
        return _conversion(made.tensors, way, self._place)

    def _outputs(self, divided: DividedOperator, made: Mapping[str, _Made]) -> dict[str, _Made]:
        operator, splits = divided.operator, divided.strategy.splits
        results = self._run(divided, made)
        rows = results[-2:] if divided.module.rows else ()
        own = iter(results[:-2] if rows else results)
        found = {}
        for tensor in operator.outputs:
            tensors = tuple(own) if tensor is operator.outputs[-1] else (next(own),)
            found[tensor.name] = _Made(
                tensors=(*tensors, *rows),
                placements=output_placements(tensor, splits),
                gradients=output_gradient_placements(tensor, splits),
                saved=tensor.saved,
                are_rows=divided.module.rows,
            )
        return found

    def _run(self, divided: DividedOperator, made: Mapping[str, _Made]) -> LayerState:
        ways = list(_ways(divided, made))
        weights = divided.weights
        call = Call(place=self._place, ways=ways, weights=tuple(weights.values()), gathers_again=self._again)
        inputs = [tensor for port in divided.ports for tensor in made[port.tensor].tensors]
        taken = call.take(*inputs)
        local = {f"layer.{name}": own for name, own in zip(weights, taken[len(inputs) :], strict=True)}
        part = divided.part(self._place)
        draws = divided.module.draws and self._runner.layer.training
        with call.keeping_parts(), _own_draws(part, self._place.device) if draws else nullcontext():
            arguments = (divided.module, taken[: len(inputs)], part)
            outputs = functional_call(self._runner, local, arguments, tie_weights=False)
        return call.leave(as_state(outputs))


@contextmanager
def _own_draws(part: LoopPart, device: torch.device) -> Iterator[None]:
    """Random numbers of each part's own; afterwards all devices go on with equal ones."""
    seed = int(torch.randint(2**62, ()))
    index = 0
    for dim in sorted(part.indices):
        own, parts = part.indices[dim]
        index = index * parts + own
    with torch.random.fork_rng(devices=(device,) if device.type == "cuda" else ()):
        torch.manual_seed(seed + index)
        yield


def converted(state: LayerState, source: Placements, target: Placements, place: MeshPlace) -> LayerState:
    """A state without partial sums in other placements."""
    made = _Made(tensors=state, placements=source, gradients=source, saved=False)
    return _conversion(state, _way(made, target, target, saved=False), place)


def _conversion(tensors: LayerState, way: Way, place: MeshPlace) -> LayerState:
    return Call(place=place, ways=[way] * len(tensors), weights=(), gathers_again=False).take(*tensors)


def _ways(divided: DividedOperator, made: Mapping[str, _Made]) -> Iterator[Way]:
    """The ways of an operator's inputs."""
    splits = divided.strategy.splits
    whole = tuple(WHOLE_LOOP if split == PARTIAL_SUMS else split for split in splits)
    for port in divided.operator.inputs:
        own, gradient = made[port.tensor], input_gradient_placements(port, splits)
        saved = own.saved and divided.operator.needs_inputs
        way = _way(own, input_placements(port, splits), gradient, saved=saved)
        yield from (replace(way, num_tensors=3),) if own.are_rows else (way,) * len(own.tensors)
    for port in divided.module.also:
        gradients = zip(input_gradient_placements(port, whole), splits, strict=True)
        summed = tuple(PARTIAL if split == PARTIAL_SUMS else gradient for gradient, split in gradients)
        own = made[port.tensor]
        yield from (_way(own, input_placements(port, whole), summed, saved=False),) * len(own.tensors)


def _way(made: _Made, taken: Placements, gradient: Placements, *, saved: bool) -> Way:
    ends = TensorEnds(made=made.placements, made_gradient=made.gradients, taken=taken, taken_gradient=gradient)
    return Way(ends=ends, saved=saved)


class _Runner(nn.Module):
    """Gives `functional_call` a way into a layer other than its forward."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, module: OperatorModule, inputs: tuple[Tensor, ...], part: LoopPart) -> Any:
        """Run one operator."""
        return module.run(self.layer, inputs, part)
