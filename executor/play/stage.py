"""The layers of one stage as a torch module."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

State = tuple[Tensor, ...]
"""What a layer is called with and hands on; samples are dimension 0 of every tensor."""


def as_state(value: Tensor | Sequence[Tensor]) -> State:
    """A tensor, or several, as a state."""
    return (value,) if isinstance(value, Tensor) else tuple(value)


class StageModule(nn.Module):
    """Consecutive layers of a chain.

    Parameters
    ----------
    index
        Of the stage in its pipeline.
    names
        Global names of the layers, one for each module.
    recompute
        Whether every layer keeps its input only, and is computed again before its backward.
    """

    def __init__(self, index: int, *, names: Sequence[str], layers: Sequence[nn.Module], recompute: bool) -> None:
        super().__init__()
        self.index = index
        self.names = tuple(names)
        self.layers = nn.ModuleList(layers)
        self.recompute = recompute

    def forward(self, state: State) -> State:
        """Run the layers one after another."""
        for layer in self.layers:
            state = as_state(self._again_later(layer, state) if self._recomputes else layer(*state))
        return state

    def global_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters under the names they have whatever the partition: layer, dot, name in the layer."""
        for name, layer in zip(self.names, self.layers, strict=True):
            for own, parameter in layer.named_parameters():
                yield f"{name}.{own}", parameter

    def global_buffers(self) -> Iterator[tuple[str, Tensor]]:
        """Buffers that a checkpoint has to hold, such as running statistics, named like parameters."""
        for name, layer in zip(self.names, self.layers, strict=True):
            kept = layer.state_dict(keep_vars=True)
            yield from ((f"{name}.{own}", buffer) for own, buffer in layer.named_buffers() if own in kept)

    @property
    def _recomputes(self) -> bool:
        return self.recompute and torch.is_grad_enabled()

    @staticmethod
    def _again_later(layer: nn.Module, state: State) -> Tensor | Sequence[Tensor]:
        """Random numbers are drawn again as they were: dropout masks of both passes agree."""
        result: Tensor | Sequence[Tensor] = checkpoint(layer, *state, use_reentrant=False, preserve_rng_state=True)
        return result
