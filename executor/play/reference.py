"""The same training step in a single process, to compare with."""

from dataclasses import dataclass

import torch
from torch import Tensor

from stagecut.executor.play.batch import Batch, CountFunction, LossFunction
from stagecut.executor.play.build import build_layer, share_tied
from stagecut.executor.play.stage import StageModule, as_state, from_state
from stagecut.models.modules.module_chain import ModuleChain


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Loss and gradients of one global batch."""

    loss: float
    gradients: dict[str, Tensor]
    """By global name, tied weights under their owner's."""


def reference_step(
    chain: ModuleChain,
    batch: Batch,
    loss: LossFunction,
    *,
    seed: int,
    count: CountFunction | None = None,
    device: torch.device | None = None,
    autocast: torch.dtype | None = None,
) -> Reference:
    """Forward and backward of the whole batch through all layers, which are built as the ranks build theirs."""
    place = device or torch.device("cpu")
    layers = [build_layer(chain, index, seed=seed).to(place) for index in range(len(chain.layers))]
    stage = StageModule(0, names=[layer.name for layer in chain.layers], layers=layers, recompute=False)
    owners = share_tied(chain, [stage])
    inputs, targets = (tuple(tensor.to(place) for tensor in as_state(part)) for part in batch)
    with torch.autocast(place.type, dtype=autocast, enabled=autocast is not None):
        output = stage(inputs)
        result = loss(from_state(output), targets[0] if isinstance(batch[1], Tensor) else targets)
    result = result if count is None else result / count(batch[1])
    result.backward()
    gradients = {
        owners.get(name, name): parameter.grad
        for name, parameter in stage.global_parameters()
        if parameter.grad is not None
    }
    return Reference(loss=float(result.detach()), gradients=gradients)
