"""The same training step in a single process, to compare with."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from stagecut.executor.play.batch import Batch, CountFunction, LossFunction
from stagecut.executor.play.build import build_layer
from stagecut.executor.play.stage import as_state
from stagecut.models.module_chain import ModuleChain


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
    """Forward and backward of the whole batch through all layers, built as the ranks build theirs."""
    place = device or torch.device("cpu")
    modules = [build_layer(chain, index, seed=seed).to(place) for index in range(len(chain.layers))]
    for tie in chain.ties:
        _tie(modules[tie.copy[0]], tie.copy[1], modules[tie.owner[0]].get_parameter(tie.owner[1]))
    state = tuple(tensor.to(place) for tensor in as_state(batch[0]))
    targets = tuple(tensor.to(place) for tensor in as_state(batch[1]))
    with torch.autocast(place.type, dtype=autocast, enabled=autocast is not None):
        for module in modules:
            state = as_state(module(*state))
        result = loss(state[0] if len(state) == 1 else state, targets[0] if isinstance(batch[1], Tensor) else targets)
    result = result if count is None else result / count(batch[1])
    result.backward()
    named: dict[nn.Parameter, str] = {}
    for layer, module in zip(chain.layers, modules, strict=True):
        for name, parameter in module.named_parameters():
            named.setdefault(parameter, f"{layer.name}.{name}")
    gradients = {name: parameter.grad for parameter, name in named.items() if parameter.grad is not None}
    return Reference(loss=float(result.detach()), gradients=gradients)


def _tie(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
    path, _, own = name.rpartition(".")
    setattr(module.get_submodule(path), own, parameter)
