"""Random samples for measurements."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stagecut.executor.play.stage import LayerState, as_state
from stagecut.models.modules.module_chain import ModuleChain
from stagecut.planner.core.messages.errors import BadInputError

SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """A state of the chain, and the targets for its output."""

    state: LayerState
    targets: Any
    """A tensor, several, or None if the chain has no loss."""

    @property
    def size(self) -> int:
        """Number of samples."""
        return len(self.state[0])

    def first(self, size: int) -> "Samples":
        """A copy of the first `size` samples."""
        return Samples(state=tuple(tensor[:size].clone() for tensor in self.state), targets=_first(self.targets, size))


def draw_samples(chain: ModuleChain, size: int, *, shape: tuple[int, ...] | None, device: torch.device) -> Samples:
    """Random inputs and targets for a chain, the same in every process.

    Parameters
    ----------
    shape
        Shape of one sample, for a chain that cannot make samples itself; filled with normal random numbers.

    Raises
    ------
    BadInputError
        If the chain has no `batch` and no shape is given.
    """
    generator = torch.Generator().manual_seed(SEED)
    if chain.batch is not None:
        inputs, targets = chain.batch(size, generator)
        return Samples(state=_moved(as_state(inputs), device), targets=_moved(targets, device))
    if shape is None:
        raise BadInputError(
            f"model {chain.name!r} does not define its inputs; give the shape of a sample with --sample-shape, "
            "or a ModuleChain with a `batch` function"
        )
    return Samples(state=(torch.randn((size, *shape), generator=generator).to(device),), targets=None)


def fresh_state(state: LayerState, *, gradients: bool) -> LayerState:
    """The state as it arrives at a stage: detached, and requiring gradients unless it is the model's input."""
    return tuple(tensor.detach().requires_grad_(gradients and tensor.is_floating_point()) for tensor in state)


def _first(tensors: Any, size: int) -> Any:
    if tensors is None:
        return None
    return tensors[:size].clone() if isinstance(tensors, Tensor) else tuple(each[:size].clone() for each in tensors)


def _moved(tensors: Any, device: torch.device) -> Any:
    return tensors.to(device) if isinstance(tensors, Tensor) else tuple(each.to(device) for each in tensors)
