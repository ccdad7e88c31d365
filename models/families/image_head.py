"""Classifier at the end of an image model.

A linear layer to `n` classes and cross entropy over one label:

- parameters: `n w + n` for an input of width `w`
- forward FLOPs: `2 n w`
- saved: the input it pools from, its pooled input `w`, log-probabilities `4 n` bytes, the label, 8 bytes
- working: gradients of its input, and of the logits in the training precision and in fp32: `n` and `4 n` bytes
"""

from stagecut.models.families.chain import FP32_BYTES, INDEX_BYTES, LayerCounts, layer_of
from stagecut.models.families.operators import Dim, OperatorCounts, TensorCounts, linear, splits
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Port

CLASS, FEATURE = "class", "feature"
NUM_CLASSES = 1000
"""ImageNet's."""


def image_head(
    name: str, *operators: OperatorCounts, feature: Dim, pooled_from: int = 0, classes: int = NUM_CLASSES
) -> LayerCounts:
    """A classifier on the tensor `pooled` that the operators make of `pooled_from` elements, or else on the input."""
    loss, kind = Dim(name=CLASS, size=classes), "head"
    product = linear(
        "project",
        "pooled" if operators else INPUT,
        made={"logits": classes},
        given=feature,
        out=loss,
        working=classes if operators else feature.size + classes,
    )
    return layer_of(name, (*operators, product, _class_loss(loss)), kind=kind, saved_input=pooled_from or feature.size)


def _class_loss(classes: Dim) -> OperatorCounts:
    precise = FP32_BYTES * classes.size
    return OperatorCounts(
        name="loss",
        kind="loss",
        inputs=(Port(tensor="logits", dims=(SAMPLE, CLASS)),),
        outputs=(
            TensorCounts(name=OUTPUT, dims=(SAMPLE,)),
            TensorCounts(name="log-probabilities", dims=(SAMPLE, CLASS), fixed_bytes=precise, saved=True),
            TensorCounts(name="label", dims=(SAMPLE,), fixed_bytes=INDEX_BYTES, saved=True),
        ),
        splits=splits(classes),
        working_fixed_bytes=precise,
    )
