"""Losses: the mean over samples, every sample weighing the same."""

import torch
from torch import Tensor
from torch.nn import functional


def class_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross entropy over the last dimension of the logits, in fp32 at least, as a mean over all positions.

    Parameters
    ----------
    logits
        Shape (samples, ..., classes).
    classes
        Shape (samples, ...), int64.
    """
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise.flatten(0, -2), classes.flatten())


def pixel_loss(logits: Tensor, classes: Tensor) -> Tensor:
    """Cross entropy of every pixel, for logits of shape (samples, classes, side, side)."""
    precise = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return functional.cross_entropy(precise, classes)


def pre_training_loss(output: tuple[Tensor, Tensor], targets: tuple[Tensor, Tensor]) -> Tensor:
    """Of BERT: masked tokens, here over all positions, plus next sentence."""
    tokens, next_sentence = output
    return class_loss(tokens, targets[0]) + class_loss(next_sentence, targets[1])
