"""What the tensors of a state look like."""

from typing import NamedTuple

import torch
from torch import Tensor

from stagecut.executor.play.stage import LayerState


class TensorLike(NamedTuple):
    """Shape, per sample, and type of a tensor of a state."""

    shape: tuple[int, ...]
    dtype: torch.dtype

    def empty(self, num_samples: int, device: torch.device) -> Tensor:
        """An uninitialised tensor for so many samples."""
        return torch.empty((num_samples, *self.shape), dtype=self.dtype, device=device)


Signature = tuple[TensorLike, ...]
"""The state that crosses a boundary."""


def signature_of(state: LayerState) -> Signature:
    """Shapes per sample and types of the tensors of a state."""
    return tuple(TensorLike(tuple(tensor.shape[1:]), tensor.dtype) for tensor in state)


def look(signature: Signature) -> str:
    """A signature in words, for messages."""
    sizes = (f"({', '.join(map(str, like.shape))}) {str(like.dtype).removeprefix('torch.')}" for like in signature)
    return ", ".join(sizes) or "nothing"
