"""A stage whose layers are divided over a mesh: builds it on one rank, and runs it."""

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from stagecut.executor.play.build import set_parameter
from stagecut.executor.play.stage import LayerState, StageModule, as_state
from stagecut.executor.sharding.layer import DividedOperator, Returned, ShardedLayer, converted
from stagecut.executor.sharding.objective import DividedLoss
from stagecut.executor.sharding.place import MeshPlace
from stagecut.executor.sharding.planned import PlannedLayer, RunOperator
from stagecut.executor.sharding.weights import Division, HeldWeight, TiedUse, Use
from stagecut.planner.core.operators.operators import OUTPUT, SAMPLE, Port
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
        weights: Sequence[Use],
        place: MeshPlace,
        *,
        after: Placements,
        loss: DividedLoss | None,
    ) -> None:
        self.layers, self._place, self._after = layers, place, after
        self._weights = weights
        self.loss = loss
        """How the loss is divided; None if this is not the last stage."""

    def run(self, state: LayerState, *, recompute: bool) -> LayerState:
        """Run the layers one after another."""
        for layer in self.layers:
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

    def sum_gradients(self, over_copies: Callable[[Mapping[nn.Parameter, Tensor]], None]) -> None:
        """After the last backward: sum within the mesh, then over the copies of the stage.

        Parameters
        ----------
        over_copies
            Sums tensors in place, each a part of the gradient of a parameter, over all ranks with the same part.
        """
        for weight in self._weights:
            if isinstance(weight, TiedUse):
                weight.finish()
        held = [own for own in self._weights if isinstance(own, HeldWeight) and own.parameter.requires_grad]
        parts = {weight.parameter: weight.part() for weight in held}
        over_copies(parts)
        for weight in held:
            weight.complete(parts[weight.parameter])


def shard_stage(
    stage: StageModule,
    planned: Sequence[PlannedLayer],
    place: MeshPlace,
    *,
    ties: Mapping[tuple[str, str], tuple[str, str]],
    is_last: bool,
) -> ShardedStage:
    """Divide the layers of a stage, each of which this rank has whole before.

    Parameters
    ----------
    ties
        Owners of tied weights of the stage by their copies, each given by the names of layer and parameter.
    """
    held: dict[tuple[str, str], Use] = {}
    before: Placements = (REPLICATE,) * len(place.sizes)
    layers, loss = [], None
    for module, own in zip(stage.layers, planned, strict=True):
        divided = [
            _divided(module, own.module.name, run, place=place, ties=ties, held=held)
            for run in own.run_operators(module)
        ]
        if is_last and own is planned[-1]:
            loss = _loss(own, place)
        after = _returned(divided[-1])
        returns = (Returned(tensor=OUTPUT, taken=after, gradient=after),) if loss is None else _returns_to(loss)
        layers.append(ShardedLayer(module, divided, place, before=before, returns=returns, again=not stage.recompute))
        before = after
    return ShardedStage(layers, list(held.values()), place, after=before, loss=loss)


def _divided(
    module: nn.Module,
    layer: str,
    run: RunOperator,
    *,
    place: MeshPlace,
    ties: Mapping[tuple[str, str], tuple[str, str]],
    held: dict[tuple[str, str], Use],
) -> DividedOperator:
    """Replace the operator's parameters by this rank's parts of them, and remember these in `held`."""
    weights: dict[str, Use] = {}
    for name, dims in run.module.weights.items():
        division, owner = Division.of(dims, run.strategy, place.mesh), held.get(ties.get((layer, name), ("", "")))
        if isinstance(owner, HeldWeight):
            weights[name] = TiedUse(owner=owner, division=division)
        else:
            weights[name] = HeldWeight.of(module.get_parameter(name), division, place)
        set_parameter(module, name, weights[name].parameter)
        held[layer, name] = weights[name]
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
