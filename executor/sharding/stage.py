"""A stage whose layers are divided over a mesh: builds it on one rank, and runs it."""

from collections.abc import Sequence

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from stagecut.executor.play.build import set_parameter
from stagecut.executor.play.stage import LayerState, StageModule, as_state
from stagecut.executor.sharding.layer import DividedOperator, Returned, ShardedLayer, converted
from stagecut.executor.sharding.objective import DividedLoss
from stagecut.executor.sharding.place import MeshPlace
from stagecut.executor.sharding.planned import PlannedLayer, RunOperator
from stagecut.executor.sharding.weights import Division, HeldWeight
from stagecut.planner.core.operators import OUTPUT, SAMPLE, Port
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.placements import REPLICATE, Placements
from stagecut.planner.sharding.strategies import input_gradient_placements, input_placements, output_placements


class ShardedStage:
    """The layers of a stage on one rank.

    It takes and returns whole tensors, of which every rank of the mesh has a copy; the last stage returns this rank's
    part of what the loss takes.
    """

    def __init__(
        self,
        layers: Sequence[ShardedLayer],
        weights: Sequence[HeldWeight],
        place: MeshPlace,
        *,
        after: Placements,
        loss: DividedLoss | None,
    ) -> None:
        self._layers, self._weights, self._place, self._after = layers, weights, place, after
        self.loss = loss
        """How the loss is divided; None if this is not the last stage."""

    def run(self, state: LayerState, *, recompute: bool) -> LayerState:
        """Run the layers one after another."""
        for layer in self._layers:
            if recompute and torch.is_grad_enabled():
                with set_checkpoint_early_stop(False):  # all ranks repeat the same collectives
                    state = as_state(checkpoint(layer, state, use_reentrant=False))
            else:
                state = layer(state)
        if self.loss is not None:
            return state
        return converted(state, self._after, (REPLICATE,) * len(self._place.sizes), self._place)

    def refresh(self) -> None:
        """Before a step: gather the weights that were updated in parts."""
        for weight in self._weights:
            weight.refresh()

    def finish(self) -> None:
        """After the last backward: complete the gradients within the mesh."""
        for weight in self._weights:
            weight.finish()


def shard_stage(stage: StageModule, planned: Sequence[PlannedLayer], place: MeshPlace, *, is_last: bool) -> ShardedStage:
    """Divide the layers of a stage, each of which this rank has whole before."""
    before: Placements = (REPLICATE,) * len(place.sizes)
    layers, weights, loss = [], [], None
    for module, own in zip(stage.layers, planned, strict=True):
        divided = [_divided(module, run, place) for run in own.run_operators(module)]
        weights += [weight for operator in divided for weight in operator.weights.values()]
        if is_last and own is planned[-1]:
            loss = _loss(own, place)
        after = _returned(divided[-1])
        returns = (Returned(tensor=OUTPUT, taken=after, gradient=after),) if loss is None else _returns_to(loss)
        layers.append(ShardedLayer(module, divided, place, before=before, returns=returns, again=not stage.recompute))
        before = after
    return ShardedStage(layers, weights, place, after=before, loss=loss)


def _divided(module: nn.Module, run: RunOperator, place: MeshPlace) -> DividedOperator:
    """Replace the operator's parameters by this rank's parts of them."""
    weights = {}
    for name, dims in run.module.weights.items():
        held = HeldWeight.of(module.get_parameter(name), Division.of(dims, run.strategy), place)
        set_parameter(module, name, held.parameter)
        weights[name] = held
    return DividedOperator(operator=run.operator, strategy=run.strategy, module=run.module, weights=weights)


def _returned(last: DividedOperator) -> Placements:
    return returned(output_placements(last.operator.outputs[0], last.strategy.splits))


def _loss(layer: PlannedLayer, place: MeshPlace) -> DividedLoss:
    if layer.loss is None or layer.runs_whole:
        ports = (Port(tensor=OUTPUT, dims=(SAMPLE, "class")),)
        return DividedLoss(ports=ports, splits=layer.strategy.operators[-1].splits, place=place)
    operator, strategy = layer.loss
    return DividedLoss(ports=operator.inputs, splits=strategy.splits, place=place)


def _returns_to(loss: DividedLoss) -> tuple[Returned, ...]:
    return tuple(
        Returned(
            tensor=port.tensor,
            taken=input_placements(port, loss.splits),
            gradient=input_gradient_placements(port, loss.splits),
        )
        for port in loss.ports
    )
