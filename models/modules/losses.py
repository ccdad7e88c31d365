"""Losses: means over labels, of which samples may have different numbers."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from stagecut.models.modules.module_chain import CountedLoss

IGNORED = -100
"""Label of positions that do not count: padding, or tokens that were not masked."""


def num_counted(classes: Tensor) -> Tensor:
    """Number of labels that count."""
    return (classes != IGNORED).sum()


def cross_entropy(logits: Tensor, classes: Tensor) -> Tensor:
    """Sum over the labels that count; classes are the last dimension of the logits. Computed in at least fp32.

    Parameters
    ----------
    logits
        Shape (samples, ..., classes).
    classes
        Shape (samples, ...), int64.
    """
    return _summed(logits.flatten(0, -2), classes.flatten())


def _summed(logits: Tensor, classes: Tensor) -> Tensor:
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise, classes, ignore_index=IGNORED, reduction="sum")


CrossEntropy = Callable[[Tensor, Tensor], Tensor]
"""Maps logits and classes to the sum over the labels that count."""


def _class_part(crossed: CrossEntropy) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda logits, classes, count: crossed(logits, classes) / count


def _pre_training_part(
    crossed: CrossEntropy,
) -> Callable[[tuple[Tensor, Tensor], tuple[Tensor, Tensor], tuple[Tensor, Tensor]], Tensor]:
    def part(output: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor], counts: tuple[Tensor, Tensor]) -> Tensor:
        tokens, next_sentence = (
            crossed(logits, classes) / count for logits, classes, count in zip(output, targets, counts, strict=True)
        )
        return tokens + next_sentence

    return part


class_loss = CountedLoss(part=_class_part(cross_entropy), count=num_counted, part_with=_class_part)
"""Cross entropy of logits of shape (samples, ..., classes)."""
pixel_loss = CountedLoss(part=_class_part(_summed), count=num_counted)
"""Cross entropy of every pixel, for logits of shape (samples, classes, side, side)."""
pre_training_loss = CountedLoss(
    part=_pre_training_part(cross_entropy),
    count=lambda targets: (num_counted(targets[0]), num_counted(targets[1])),
    part_with=_pre_training_part,
)
"""BERT's: masked tokens plus next sentence."""
