"""A model with given weights, evaluated in one process."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from stagecut.executor.play.batch import Batch, Tensors
from stagecut.executor.play.stage import LayerState, as_state, from_state
from stagecut.executor.waves.setting.execution import WaveExecution


def whole_model(execution: WaveExecution, weights: Mapping[str, Tensor]) -> nn.ModuleList:
    """All layers of the plan's model with weights and buffers by global name, in evaluation mode."""
    layers = execution.build(range(len(execution.chain.layers)), torch.device("cpu"))
    for index, module in layers.items():
        name = execution.chain.layers[index].name
        own = {key: value for key, value in weights.items() if key.startswith(f"{name}.")}
        values = {key.removeprefix(f"{name}."): value for key, value in own.items()}
        missing = module.load_state_dict(values, strict=False).missing_keys
        assert not missing, f"layer {name!r} lacks {missing}"
    return nn.ModuleList(layers.values()).eval()


@torch.no_grad()
def outputs_of(model: nn.ModuleList, inputs: Tensors) -> Tensor | LayerState:
    """What the last layer gives."""
    state = as_state(inputs)
    for layer in model:
        state = as_state(layer(*state))
    return from_state(state)


@torch.no_grad()
def mean_loss(execution: WaveExecution, weights: Mapping[str, Tensor], batch: Batch) -> float:
    """The mean loss of a batch."""
    output = outputs_of(whole_model(execution, weights), batch[0])
    targets = batch[1] if isinstance(batch[1], Tensor) else tuple(batch[1])
    return float(execution.loss(output, targets))
