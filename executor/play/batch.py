"""The global batch, as the ends of a pipeline see it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from stagecut.executor.play.messages import Piece
from stagecut.executor.play.stage import State, as_state
from stagecut.models.module_chain import CountedLoss
from stagecut.planner.core.checks import require
from stagecut.planner.core.errors import BadInputError

Tensors = Tensor | Sequence[Tensor]
Batch = tuple[Tensors, Tensors]
"""Inputs and targets of the whole global batch; samples are dimension 0 of every tensor."""
LossFunction = Callable[[Any, Any], Tensor]
"""Of the last layer's output and the targets: the mean over the samples given, or their sum where they are counted.
A `CountedLoss` knows how to count."""
CountFunction = Callable[[Any], float]
"""What the sum of the losses is divided by, from the targets of the whole global batch."""


def check_batch(batch: object, global_batch: int) -> None:
    """Complain of what is no batch, or has another size than the plan's.

    Raises
    ------
    BadInputError
        If it is no pair of tensors or of tuples of them, or a tensor has another number of samples.
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


def _checked(name: str, tensors: object) -> State:
    several = tensors if isinstance(tensors, tuple | list) else (tensors,)
    wrong = [each for each in several if not isinstance(each, Tensor)]
    if not several and name == "inputs":
        wrong = [several]
    if not wrong:
        return tuple(several)
    got = f"{_named(wrong[0])}{_hint(wrong[0])}"
    raise BadInputError(f"batch: {name} must be a tensor or a tuple of tensors, got {got}")


def _named(value: object) -> str:
    """What was got instead, in a few words."""
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
    """Which pair is meant, as far as the keys tell."""
    keys = _keys(batch)
    if len(keys) < 2:
        return _hint(batch)
    inputs = "input_ids" if "input_ids" in keys else keys[0]
    targets = "labels" if "labels" in keys and inputs != "labels" else next(key for key in keys[::-1] if key != inputs)
    return f"; take them out, for example (batch[{inputs!r}], batch[{targets!r}])"


def _hint(value: object) -> str:
    if _keys(value):
        return "; take the tensors out, in the order in which the first layer and the loss are given them"
    return "; torch.as_tensor makes one of it" if hasattr(value, "__array__") else ""


def _keys(value: object) -> list[Any]:
    """Of a dictionary, or of what libraries have in place of one; none of anything else."""
    return list(value.keys()) if callable(getattr(value, "keys", None)) else []  # type: ignore[attr-defined]


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
