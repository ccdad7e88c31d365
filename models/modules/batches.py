"""Random inputs and targets."""

import torch
from torch import Generator, Tensor


def next_token_batch(num_samples: int, generator: Generator, *, vocabulary: int, tokens: int) -> tuple[Tensor, Tensor]:
    """Random texts, and the same texts shifted by one token; both of shape (samples, tokens)."""
    text = draw_classes((num_samples, tokens + 1), vocabulary, generator=generator)
    return text[:, :-1].contiguous(), text[:, 1:].contiguous()


def pre_training_batch(
    num_samples: int, generator: Generator, *, vocabulary: int, tokens: int
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Texts and segments as inputs; original texts and whether the second half follows the first as targets."""
    text = draw_classes((num_samples, tokens), vocabulary, generator=generator)
    segments = (torch.arange(tokens, device=generator.device) >= tokens // 2).long().expand(num_samples, tokens)
    restored = draw_classes((num_samples, tokens), vocabulary, generator=generator)
    return (text, segments.contiguous()), (restored, draw_classes((num_samples,), 2, generator=generator))


def image_batch(
    num_samples: int, generator: Generator, *, channels: int, side: int, classes: int, per_pixel: bool = False
) -> tuple[Tensor, Tensor]:
    """Images, and one class for each image or for each of its pixels."""
    images = torch.randn((num_samples, channels, side, side), generator=generator, device=generator.device)
    labelled = (num_samples, side, side) if per_pixel else (num_samples,)
    return images, draw_classes(labelled, classes, generator=generator)


def draw_classes(shape: tuple[int, ...], count: int, *, generator: Generator) -> Tensor:
    """Integers from 0 to below `count`, on the generator's device."""
    return torch.randint(count, shape, generator=generator, device=generator.device)
