"""Losses: means over labels, of which samples may have different numbers."""

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


def _pre_training(
    output: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor], counts: tuple[Tensor, Tensor]
) -> Tensor:
    tokens, next_sentence = (
        cross_entropy(logits, classes) / count for logits, classes, count in zip(output, targets, counts, strict=True)
    )
    return tokens + next_sentence


class_loss = CountedLoss(part=lambda logits, classes, count: cross_entropy(logits, classes) / count, count=num_counted)
"""Cross entropy of logits of shape (samples, ..., classes)."""
pixel_loss = CountedLoss(part=lambda logits, classes, count: _summed(logits, classes) / count, count=num_counted)
"""Cross entropy of every pixel, for logits of shape (samples, classes, side, side)."""
pre_training_loss = CountedLoss(
    part=_pre_training, count=lambda targets: (num_counted(targets[0]), num_counted(targets[1]))
)
"""BERT's: masked tokens plus next sentence."""
