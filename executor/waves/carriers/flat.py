"""Named tensors as one vector."""

from collections.abc import Mapping
from itertools import accumulate, pairwise

import torch
from torch import Tensor


class FlatLayout:
    """Where each of some named tensors lies in a vector.

    Parameters
    ----------
    tensors
        Examples, all of one type.
    """

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self.names = tuple(tensors)
        self._shapes = [tensor.shape for tensor in tensors.values()]
        ends = accumulate((tensor.numel() for tensor in tensors.values()), initial=0)
        self._slices = [slice(lo, hi) for lo, hi in pairwise(ends)]
        first = next(iter(tensors.values()), torch.zeros(0))
        self._empty = first.new_zeros(0)
        self.numel = self._slices[-1].stop if self._slices else 0

    def join(self, tensors: Mapping[str, Tensor | None]) -> Tensor:
        """A new vector of the tensors; zeros for those that are None."""
        parts = [self._empty]
        for name, shape in zip(self.names, self._shapes, strict=True):
            tensor = tensors[name]
            parts.append(self._empty.new_zeros(shape.numel()) if tensor is None else tensor.detach().reshape(-1))
        return torch.cat(parts)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Views of the tensors in a vector."""
        places = zip(self.names, self._slices, self._shapes, strict=True)
        return {name: vector[own].view(shape) for name, own, shape in places}

    @property
    def empty(self) -> Tensor:
        """A vector without numbers, of the right type and device."""
        return self._empty
