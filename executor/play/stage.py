"""The layers of one stage as a torch module."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

LayerState = tuple[Tensor, ...]
"""The inputs or outputs of a layer; dimension 0 of every tensor counts samples."""


def as_state(value: Tensor | Sequence[Tensor]) -> LayerState:
    """Wrap a tensor, or several, as a state."""
    return (value,) if isinstance(value, Tensor) else tuple(value)


class Division(Protocol):
    """How the devices of a replica divide the layers of a stage; see :mod:`stagecut.executor.sharding`."""

    loss: Any
    """How they divide the loss; None if this is not the last stage, or the loss is not divided."""

    def run(self, state: LayerState, *, recompute: bool) -> LayerState:
        """Run the layers: whole tensors in, and out unless the loss is divided."""
        ...

    def refresh(self) -> None:
        """Gather, before a step, the weights that were updated in parts."""
        ...

    def sum_gradients(self, over_copies: Callable[[Mapping[nn.Parameter, Tensor]], None]) -> None:
        """Sum gradients within the replica and, part by part, over the copies of the stage."""
        ...


class StageModule(nn.Module):
    """Consecutive layers of a chain.

    Parameters
    ----------
    index
        Index of the stage in its pipeline.
    names
        Global names of the layers, one for each module.
    recompute
        Whether every layer saves only its input and is recomputed before its backward.
    """

    def __init__(self, index: int, *, names: Sequence[str], layers: Sequence[nn.Module], recompute: bool) -> None:
        super().__init__()
        self.index = index
        self.names = tuple(names)
        self.layers = nn.ModuleList(layers)
        self.recompute = recompute
        self.division: Division | None = None

    def forward(self, state: LayerState) -> LayerState:
        """Run the layers one after another."""
        if self.division is not None:
            return self.division.run(state, recompute=self.recompute)
        recomputes = self.recompute and torch.is_grad_enabled()
        for layer in self.layers:
            # dropout masks of both passes agree, because the state of the generator is preserved
            state = as_state(checkpoint(layer, *state, use_reentrant=False) if recomputes else layer(*state))
        return state

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by global names, which do not depend on the partition: layer name, dot, name in the layer."""
        for name, layer in zip(self.names, self.layers, strict=True):
            for own, parameter in layer.named_parameters():
                yield f"{name}.{own}", parameter

    def global_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers that belong in a checkpoint, such as running statistics, named like parameters."""
        for name, layer in zip(self.names, self.layers, strict=True):
            kept = layer.state_dict(keep_vars=True)
            yield from ((f"{name}.{own}", buffer) for own, buffer in layer.named_buffers() if own in kept)


def from_state(state: LayerState) -> Tensor | LayerState:
    """A single tensor as such, several as a tuple: what losses are called with."""
    return state[0] if len(state) == 1 else state


def precision(device: torch.device, autocast: torch.dtype | None) -> AbstractContextManager[object]:
    """The autocast context of a training step, which keeps copies of weights until it ends; None: no autocast."""
    return nullcontext() if autocast is None else torch.autocast(device.type, dtype=autocast)
