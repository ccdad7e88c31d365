"""A layer whose operators are divided over a mesh."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from stagecut.executor.play.stage import LayerState, as_state
from stagecut.executor.sharding.calls import Call, Way
from stagecut.executor.sharding.place import MeshPlace
from stagecut.executor.sharding.weights import Use
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.planner.core.operators import INPUT, Operator, Port
from stagecut.planner.core.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy
from stagecut.planner.sharding.edges import TensorEnds
from stagecut.planner.sharding.placements import Placements
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
        ports = (*operator.inputs, *divided.module.also)
        results = iter(self._run(divided, [(port, made[port.tensor]) for port in ports]))
        found = {}
        for tensor in operator.outputs:
            found[tensor.name] = _Made(
                tensors=tuple(results) if tensor is operator.outputs[-1] else (next(results),),
                placements=output_placements(tensor, splits),
                gradients=output_gradient_placements(tensor, splits),
                saved=tensor.saved,
            )
        return found

    def _run(self, divided: DividedOperator, inputs: Sequence[tuple[Port, _Made]]) -> LayerState:
        splits = divided.strategy.splits
        ways = [
            _way(made, input_placements(port, splits), input_gradient_placements(port, splits), saved=made.saved)
            for port, made in inputs
            for _ in made.tensors
        ]
        weights = divided.weights
        call = Call(place=self._place, ways=ways, weights=tuple(weights.values()), gathers_again=self._again)
        taken = call.take(*(tensor for _, made in inputs for tensor in made.tensors))
        local = {f"layer.{name}": own for name, own in zip(weights, taken[len(ways) :], strict=True)}
        part = divided.part(self._place)
        draws = divided.module.draws and self._runner.layer.training
        with call.keeping_parts(), _own_draws(part, self._place.device) if draws else nullcontext():
            arguments = (divided.module, taken[: len(ways)], part)
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
