"""The loss of a sharded last stage: on each rank a part of it, of its own samples, tokens and classes."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.play.stage import LayerState, from_state
from stagecut.executor.sharding.place import MeshPlace
from stagecut.models.modules.losses import IGNORED, cross_entropy
from stagecut.models.modules.module_chain import CountedLoss
from stagecut.planner.core.operators.operators import SAMPLE, Port
from stagecut.planner.core.operators.strategy import WHOLE_LOOP
from stagecut.planner.sharding.placements import Shard
from stagecut.planner.sharding.strategies import input_placements


@dataclass(frozen=True, slots=True, kw_only=True)
class DividedLoss:
    """How the loss is divided, and this rank's part of it."""

    ports: tuple[Port, ...]
    """The outputs that it takes."""
    splits: tuple[str, ...]
    place: MeshPlace

    @property
    def reports(self) -> bool:
        """Whether this rank's part counts in the total: of ranks that compute the same, the first does."""
        return all(self.place.coordinate(axis) == 0 for axis, own in enumerate(self.splits) if own == WHOLE_LOOP)

    @property
    def divides_samples_only(self) -> bool:
        """Whether any mean over samples can be divided like this."""
        return set(self.splits) <= {SAMPLE, WHOLE_LOOP}

    def part(self, loss: Callable[..., Tensor], output: LayerState, targets: LayerState, count: object) -> Tensor:
        """The rank's part of a counted loss, from its parts of the outputs and whole targets."""
        assert isinstance(loss, CountedLoss)
        own = tuple(self._targets(target, port) for target, port in zip(targets, self._ports(targets), strict=True))
        result, wanted = from_state(output), from_state(own)
        groups = self._class_groups()
        if not groups:
            return loss.part(result, wanted, count)
        assert loss.part_with is not None  # refused before anything starts
        first = all(self.place.coordinate(axis) == 0 for axis in self._class_axes())
        crossed = partial(_divided_cross_entropy, groups=groups, start=self._class_start(output[0]), first=first)
        return loss.part_with(_first_divided(crossed))(result, wanted, count)

    def samples(self, num_samples: int) -> int:
        """Of so many samples, how many are this rank's."""
        for axis, split in enumerate(self.splits):
            num_samples //= self.place.sizes[axis] if split == SAMPLE else 1
        return num_samples

    def own_targets(self, targets: LayerState) -> LayerState:
        """The rank's samples of targets."""
        return tuple(self._sliced(target, self.ports[0]) for target in targets)

    def _ports(self, targets: LayerState) -> tuple[Port, ...]:
        return self.ports if len(self.ports) == len(targets) else self.ports[:1] * len(targets)

    def _targets(self, target: Tensor, port: Port) -> Tensor:
        """The labels of this rank's outputs; none count where another rank computes the same part of the loss."""
        own = self._sliced(target, port)
        once = (axis for axis, dim in enumerate(self.splits) if dim != WHOLE_LOOP and dim not in port.dims)
        return own if all(self.place.coordinate(axis) == 0 for axis in once) else torch.full_like(own, IGNORED)

    def _sliced(self, target: Tensor, port: Port) -> Tensor:
        for axis, own in enumerate(input_placements(port, self.splits)):
            if isinstance(own, Shard) and own.dim < target.dim():
                target = target.chunk(self.place.sizes[axis], own.dim)[self.place.coordinate(axis)]
        return target

    def _class_axes(self) -> tuple[int, ...]:
        classes = self.ports[0].dims[-1]
        return tuple(axis for axis, dim in enumerate(self.splits) if dim == classes)

    def _class_groups(self) -> tuple[dist.ProcessGroup, ...]:
        return tuple(self.place.groups[axis] for axis in self._class_axes())

    def _class_start(self, logits: Tensor) -> int:
        index = 0
        for axis in self._class_axes():
            index = index * self.place.sizes[axis] + self.place.coordinate(axis)
        return index * logits.shape[-1]


def _first_divided(crossed: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """The divided cross entropy for the first output, the usual one for others."""
    remaining = iter((crossed,))

    def sums(logits: Tensor, classes: Tensor) -> Tensor:
        return next(remaining, cross_entropy)(logits, classes)

    return sums


def _divided_cross_entropy(
    logits: Tensor, classes: Tensor, *, groups: tuple[dist.ProcessGroup, ...], start: int, first: bool
) -> Tensor:
    """Sum over the labels that count, of logits whose classes are divided; only the first rank reports it."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32)).flatten(0, -2)
    apply: Any = _DividedCrossEntropy.apply
    loss: Tensor = apply(precise, classes.flatten(), groups, start)
    return loss if first else loss - loss.detach()


class _DividedCrossEntropy(torch.autograd.Function):
    """Cross entropy over divided classes (Shoeybi et al., arXiv 1909.08053, section 3)."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, classes: Tensor, groups: tuple[dist.ProcessGroup, ...], start: int) -> Tensor:
        largest = _reduced(logits.amax(dim=-1), groups, dist.ReduceOp.MAX)
        exponentials = (logits - largest.unsqueeze(-1)).exp()
        total = _reduced(exponentials.sum(dim=-1), groups, dist.ReduceOp.SUM)
        rows = ((classes >= start) & (classes < start + logits.shape[-1])).nonzero().squeeze(-1)
        columns = classes[rows] - start
        chosen = torch.zeros_like(largest)
        chosen[rows] = logits[rows, columns]
        chosen = _reduced(chosen, groups, dist.ReduceOp.SUM)
        counted = classes != IGNORED
        ctx.save_for_backward(exponentials / total.unsqueeze(-1), rows, columns, counted)
        return ((total.log() + largest - chosen) * counted).sum()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        probabilities, rows, columns, counted = ctx.saved_tensors
        gradient = probabilities.clone()
        gradient[rows, columns] -= 1.0
        return gradient * counted.unsqueeze(-1) * gradients[0], None, None, None


def _reduced(tensor: Tensor, groups: tuple[dist.ProcessGroup, ...], operation: Any) -> Tensor:
    for group in groups:
        dist.all_reduce(tensor, operation, group=group)
    return tensor
