"""What a checkpoint holds of a pipeline, under names that do not depend on the plan.

- `model.NAME`: parameters and buffers;
- `optimizer.NAME.KEY`: the optimizer's state of a parameter, such as `exp_avg`.

Other values, such as learning rates, are also stored by parameter name.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import Metadata, TensorStorageMetadata
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from stagecut.executor.pipeline import Pipeline
from stagecut.executor.play.optimizers import local_optimizer, local_states
from stagecut.planner.core.messages.errors import BadInputError

Values = Mapping[str, Mapping[str, Any]]
"""By parameter name, then by key."""
MODEL, OPTIMIZER = "model.", "optimizer."
ON_CPU = "step"
"""A state that torch's optimizers keep on the CPU, unless they are capturable or fused."""
_HOW = frozenset({"params", "foreach", "fused", "capturable", "differentiable"})
"""Entries of parameter groups that determine how an optimizer computes, not what."""


def saved_tensors(pipeline: Pipeline) -> dict[str, Tensor]:
    """The tensors that this rank writes; ranks with the same weights use the same names.

    Tied weights are saved by their owner's stage, because another one may shard them differently. Every replica has
    buffers of its own; those of the first are saved.
    """
    states = local_states(pipeline.optimizer)
    tensors = {}
    for name, parameter in _owned_parameters(pipeline).items():
        tensors[f"{MODEL}{name}"] = parameter.detach()
        own = states.get(parameter, {})
        tensors |= {f"{OPTIMIZER}{name}.{key}": value for key, value in own.items() if isinstance(value, Tensor)}
    if pipeline.role.pipeline == pipeline.role.replica == 0:
        tensors |= {f"{MODEL}{name}": buffer for name, buffer in pipeline.named_buffers().items()}
    return tensors


def saved_states(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """The optimizer's state of this rank's parameters, other than tensors."""
    states = local_states(pipeline.optimizer)
    plain = {
        name: {key: value for key, value in states.get(parameter, {}).items() if not isinstance(value, Tensor)}
        for name, parameter in _owned_parameters(pipeline).items()
    }
    return {name: own for name, own in plain.items() if own}


def saved_settings(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    """Learning rate, weight decay and so on, for each of this rank's parameters."""
    return settings_of(pipeline.optimizer, {own: name for name, own in _owned_parameters(pipeline).items()})


def settings_of(optimizer: Optimizer, names: Mapping[Tensor, str]) -> dict[str, dict[str, Any]]:
    """The same for some of the parameters of an optimizer, with their names."""
    found: dict[str, dict[str, Any]] = {}
    for group in optimizer.param_groups:
        settings = {key: value for key, value in group.items() if key not in _HOW}
        found |= {names[parameter]: settings for parameter in group["params"] if parameter in names}
    return found


def model_tensors(pipeline: Pipeline) -> dict[str, Tensor]:
    """Parameters and buffers of this rank, to be overwritten."""
    named = {name: parameter.detach() for name, parameter in pipeline.named_parameters().items()}
    return {f"{MODEL}{name}": tensor for name, tensor in (named | pipeline.named_buffers()).items()}


class OptimizerStates:
    """Memory for this rank's optimizer state in a checkpoint, allocated before it is read.

    With ZeRO-1 a rank reads the states of its own part of the parameters, whichever rank wrote them.

    Parameters
    ----------
    metadata
        That of the checkpoint.

    Raises
    ------
    BadInputError
        If a state of tensor-parallel weights differs from them in shape.
    """

    def __init__(self, pipeline: Pipeline, metadata: Metadata) -> None:
        self._optimizer = local_optimizer(pipeline.optimizer)
        self._names: dict[Tensor, str] = {parameter: name for name, parameter in pipeline.named_parameters().items()}
        found = found_states(metadata)
        self._states: dict[Tensor, dict[str, Any]] = {
            parameter: {key: _allocated(saved, name, key, like=parameter, group=group) for key, saved in own.items()}
            for parameter, name, group in self._places()
            if (own := found.get(name))
        }

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The tensors to be overwritten, by their names in the checkpoint."""
        return {
            f"{OPTIMIZER}{self._names[parameter]}.{key}": tensor
            for parameter, own in self._states.items()
            for key, tensor in own.items()
        }

    def install(self, plain: Values) -> None:
        """Replace the optimizer's state, adding the values that are not tensors."""
        self._optimizer.state.clear()
        for parameter, name, _ in self._places():
            if own := {**self._states.get(parameter, {}), **plain.get(name, {})}:
                self._optimizer.state[parameter] = own

    def _places(self) -> Iterator[tuple[Tensor, str, Mapping[str, Any]]]:
        for group in self._optimizer.param_groups:
            yield from ((parameter, self._names[parameter], group) for parameter in group["params"])


def install_settings(optimizer: Optimizer, names: Mapping[Tensor, str], settings: Values) -> None:
    """Restore learning rates and so on; parameter groups without parameters get the first one's settings.

    Parameters
    ----------
    names
        Of the optimizer's parameters, in the checkpoint.

    Raises
    ------
    BadInputError
        If parameters of one group had different settings.
    """
    default = next(iter(settings.values()), {})
    for group in optimizer.param_groups:
        own = [names[parameter] for parameter in group["params"] if names[parameter] in settings]
        chosen = settings[own[0]] if own else default
        for name in own:
            if _plain(settings[name]) != _plain(chosen):
                raise BadInputError(
                    f"optimizer: {own[0]!r} and {name!r} are in one parameter group, but had different settings when "
                    "the checkpoint was written; use the same groups as then"
                )
        group.update({key: value.clone() if isinstance(value, Tensor) else value for key, value in chosen.items()})


def _owned_parameters(pipeline: Pipeline) -> dict[str, torch.nn.Parameter]:
    """Parameters of this rank's layers, except tied weights owned by another rank."""
    owned = {name for stage in pipeline.stages for name, _ in stage.global_parameters()}
    return {name: parameter for name, parameter in pipeline.named_parameters().items() if name in owned}


def found_states(metadata: Metadata) -> dict[str, dict[str, TensorStorageMetadata]]:
    """The tensors of optimizer states, by parameter name and key."""
    found: dict[str, dict[str, TensorStorageMetadata]] = defaultdict(dict)
    for full_name, saved in metadata.state_dict_metadata.items():
        if full_name.startswith(OPTIMIZER) and isinstance(saved, TensorStorageMetadata):
            name, _, key = full_name.removeprefix(OPTIMIZER).rpartition(".")
            found[name][key] = saved
    return found


def _allocated(saved: TensorStorageMetadata, name: str, key: str, *, like: Tensor, group: Mapping[str, Any]) -> Tensor:
    """A tensor for a state, on the device where torch's `Optimizer.load_state_dict` would put it."""
    dtype, num_numbers = saved.properties.dtype, saved.size.numel()
    if key == ON_CPU and num_numbers == 1 and not (group.get("capturable") or group.get("fused")):
        return torch.zeros(saved.size, dtype=dtype)
    if saved.size == like.shape:
        return torch.zeros_like(like, dtype=dtype, requires_grad=False)
    if isinstance(like, DTensor) and num_numbers > 1:
        raise BadInputError(
            f"optimizer: {key!r} of {name!r} has shape {list(saved.size)}, the weights {list(like.shape)}: such "
            "states cannot be sharded; plan with --tensor-parallel 1, or use AdamW"
        )
    return torch.zeros(saved.size, dtype=dtype, device=like.device)


def _plain(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value.tolist() if isinstance(value, Tensor) else value for key, value in settings.items()}
