"""Classifier at the end of an image model.

A linear layer to `n` classes and cross entropy over one label:

- parameters: `n w + n` for an input of width `w`
- forward FLOPs: `2 n w`
- saved: the input it pools from, its pooled input `w`, log-probabilities `4 n` bytes, the label, 8 bytes
- working: gradients of its input, and of the logits in the training precision and in fp32: `n` and `4 n` bytes
"""

from stagecut.models.families.chain import FP32_BYTES, INDEX_BYTES, LayerCounts

NUM_CLASSES = 1000
"""ImageNet's."""


def image_head(
    name: str, *, width: int, pooled_from: int = 0, norm_params: int = 0, classes: int = NUM_CLASSES
) -> LayerCounts:
    """A classifier on `width` elements, which are pooled from `pooled_from` elements, or are the input if that is 0."""
    return LayerCounts(
        name=name,
        kind="head",
        params=classes * width + classes + norm_params,
        forward_flops=2 * classes * width,
        saved=pooled_from + width,
        saved_fixed_bytes=FP32_BYTES * classes + INDEX_BYTES,
        working=pooled_from + width + classes,
        working_fixed_bytes=FP32_BYTES * classes,
    )
