"""The global batch, as seen by the first and last stage of a pipeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stagecut.executor.play.stage import LayerState, as_state, from_state
from stagecut.executor.schedule.messages import Piece
from stagecut.models.modules.module_chain import CountedLoss
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError

Tensors = Tensor | Sequence[Tensor]
Batch = tuple[Tensors, Tensors]
"""Inputs and targets of the whole global batch; samples are dimension 0 of every tensor."""
LossFunction = Callable[[Any, Any], Tensor]
"""Maps the last layer's output and the targets to the mean over these samples, or to their sum if they are counted.
A `CountedLoss` does its own counting."""
CountFunction = Callable[[Any], float]
"""Maps the targets of the global batch to what the sum of the losses is divided by."""


def check_batch(batch: object, global_batch: int) -> None:
    """Refuse anything that is not a batch of the plan's size.

    Raises
    ------
    BadInputError
        If it is not a pair of tensors or tuples of tensors, or has another number of samples.
    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise BadInputError(
            f"batch: must be a pair (inputs, targets) of tensors or of tuples of tensors, got {_named(batch)}"
            + _pair_in(batch)
        )
    for name, tensors in zip(("inputs", "targets"), batch, strict=True):
        for tensor in _checked(name, tensors):
            if tensor.dim() == 0:
                raise BadInputError(f"batch: {name} must have samples in dimension 0, got {_named(tensor)}")
            require(len(tensor) == global_batch, "batch", f"samples of the {name}", f"{global_batch}", len(tensor))


def _checked(name: str, tensors: object) -> LayerState:
    several = tensors if isinstance(tensors, tuple | list) else (tensors,)
    wrong = [each for each in several if not isinstance(each, Tensor)]
    if not several and name == "inputs":
        wrong = [several]
    if not wrong:
        return tuple(several)
    got = f"{_named(wrong[0])}{_hint(wrong[0])}"
    raise BadInputError(f"batch: {name} must be a tensor or a tuple of tensors, got {got}")


def _named(value: object) -> str:
    """A value in a few words."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {list(value.shape)}"
    if value is None:
        return "None"
    kind = type(value).__name__
    named = f"an {kind}" if kind[0] in "aeiou" else f"a {kind}"
    if keys := _keys(value):
        return f"{named} with the keys {', '.join(map(repr, keys))}"
    return f"{named} of {len(value)}" if isinstance(value, tuple | list) else named


def _pair_in(batch: object) -> str:
    """A guess which pair is meant, from the keys."""
    keys = _keys(batch)
    if len(keys) < 2:
        return _hint(batch)
    inputs = "input_ids" if "input_ids" in keys else keys[0]
    targets = "labels" if "labels" in keys and inputs != "labels" else next(key for key in keys[::-1] if key != inputs)
    return f"; pass, for example, (batch[{inputs!r}], batch[{targets!r}])"


def _hint(value: object) -> str:
    if _keys(value):
        return "; pass a tuple of its tensors, in the order in which the first layer and the loss take them"
    return "; convert it with torch.as_tensor" if hasattr(value, "__array__") else ""


def _keys(value: object) -> list[Any]:
    """The keys of a dictionary or similar; empty for anything else."""
    return list(value.keys()) if callable(getattr(value, "keys", None)) else []  # type: ignore[attr-defined]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineBatch:
    """One pipeline's samples of a global batch, on its devices."""

    batch: Batch
    first: int
    """Index of the pipeline's first sample."""
    global_batch: int
    device: torch.device
    loss: LossFunction
    count: object = None
    """Count of the whole global batch, if the loss is a `CountedLoss`."""
    division: Any = None
    """How the devices of a replica divide the loss; None: they do not."""

    def inputs(self, piece: Piece) -> LayerState:
        """Inputs of the first layer."""
        return as_state(self._part(self.batch[0], piece))

    def objective(self, piece: Piece, output: LayerState) -> Tensor:
        """The piece's part of the mean loss over the global batch, or this rank's part of that."""
        targets = self._part(self.batch[1], piece)
        num_samples = piece.hi - piece.lo
        if self.division is not None:
            if isinstance(self.loss, CountedLoss):
                part: Tensor = self.division.part(self.loss, output, as_state(targets), self.count)
                return part
            num_samples = self.division.samples(num_samples)
            targets = from_state(self.division.own_targets(as_state(targets)))
        result = from_state(output)
        if isinstance(self.loss, CountedLoss):
            return self.loss.part(result, targets, self.count)
        return self.loss(result, targets) * (num_samples / self.global_batch)

    def _part(self, tensors: Tensors, piece: Piece) -> Tensors:
        samples = slice(self.first + piece.lo, self.first + piece.hi)
        if isinstance(tensors, Tensor):
            return tensors[samples].to(self.device, non_blocking=True)
        return tuple(tensor[samples].to(self.device, non_blocking=True) for tensor in tensors)
