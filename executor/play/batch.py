"""The global batch, as the ends of a pipeline see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from executor.play.messages import Piece
from executor.play.stage import State, as_state
from models.module_chain import CountedLoss
from planner.core.checks import require

Tensors = Tensor | Sequence[Tensor]
Batch = tuple[Tensors, Tensors]
"""Inputs and targets of the whole global batch; samples are dimension 0 of every tensor."""
LossFunction = Callable[[Any, Any], Tensor]
"""Of the last layer's output and the targets: the mean over the samples given, or their sum where they are counted.
A `CountedLoss` knows how to count."""
CountFunction = Callable[[Any], float]
"""What the sum of the losses is divided by, from the targets of the whole global batch."""


def check_batch(batch: Batch, global_batch: int) -> None:
    """Complain of a batch of another size than the plan's.

    Raises
    ------
    BadInputError
        If a tensor has another number of samples.
    """
    for name, tensors in zip(("inputs", "targets"), batch, strict=True):
        for tensor in as_state(tensors):
            require(len(tensor) == global_batch, "batch", f"samples of the {name}", f"{global_batch}", len(tensor))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """One pipeline's samples of a global batch, on its devices."""

    batch: Batch
    first: int
    """Sample 0 of the pipeline."""
    global_batch: int
    device: torch.device
    loss: LossFunction
    count: object = None
    """Of the whole global batch, where the loss is a `CountedLoss`."""

    def inputs(self, piece: Piece) -> State:
        """What the first layer is given."""
        return as_state(self._part(self.batch[0], piece))

    def objective(self, piece: Piece, output: State) -> Tensor:
        """The piece's part of the mean loss over the global batch."""
        result = output[0] if len(output) == 1 else output
        targets = self._part(self.batch[1], piece)
        if isinstance(self.loss, CountedLoss):
            return self.loss.part(result, targets, self.count)
        return self.loss(result, targets) * ((piece.hi - piece.lo) / self.global_batch)

    def _part(self, tensors: Tensors, piece: Piece) -> Tensors:
        samples = slice(self.first + piece.lo, self.first + piece.hi)
        if isinstance(tensors, Tensor):
            return tensors[samples].to(self.device, non_blocking=True)
        return tuple(tensor[samples].to(self.device, non_blocking=True) for tensor in tensors)
