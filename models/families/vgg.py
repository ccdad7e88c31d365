"""VGG networks.

One layer per `3 x 3` convolution with its ReLU and any max pooling after it; one layer per linear layer of the
classifier. Images are 224 x 224, without batch norm. There is no sequence length. `vgg16-cifar` has images of 32 x 32,
which five poolings reduce to one pixel, 10 classes and a single linear layer; it trains on a CPU.

- convolution: saves its input; with pooling also the tensor before pooling and the pooling indices,
  8 bytes per pooled element; working: gradients of input, convolution output and pooled output
- classifier: two linear layers of width 4096 with ReLU and dropout, each saving its input, the output of ReLU and a
  mask of 4096 bytes; then the image head
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.models.families.chain import Chain, LayerCounts, layer_of
from stagecut.models.families.convolution import Convolution, convolution_layer
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.image_head import FEATURE, NUM_CLASSES, image_head
from stagecut.models.families.operators import Dim, TensorCounts, elementwise, linear
from stagecut.models.families.transformer import WIDTH, mask
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE

IMAGE_SIDE = 224
IMAGE_CHANNELS = 3
CHANNELS = (64, 128, 256, 512, 512)
"""Channels of the five groups of convolutions, each of which ends with a pooling that halves the side."""
CLASSIFIER_WIDTH = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class VggShape:
    """Counts of a VGG."""

    repeats: tuple[int, ...]
    """Convolutions of each group."""
    channels: tuple[int, ...] = CHANNELS
    """Of each group."""
    side: int = IMAGE_SIDE
    classes: int = NUM_CLASSES
    hidden_layers: int = 2
    """Linear layers of the classifier before the last."""

    def convolutions(self) -> Iterator[tuple[str, Convolution, bool]]:
        """Name of each convolution, the convolution, and whether a pooling follows it."""
        inputs, side = IMAGE_CHANNELS, self.side
        for group, (channels, repeat) in enumerate(zip(self.channels, self.repeats, strict=True), start=1):
            for index in range(1, repeat + 1):
                convolution = Convolution(inputs=inputs, outputs=channels, kernel=3, side=side)
                yield f"conv{group}-{index}", convolution, index == repeat
                inputs = channels
            side //= 2

    @property
    def classifier_widths(self) -> tuple[int, ...]:
        """Inputs of each linear layer of the classifier."""
        last_side = self.side >> len(self.repeats)
        return (self.channels[-1] * last_side**2, *[CLASSIFIER_WIDTH] * self.hidden_layers)


def vgg(shape: VggShape) -> Chain:
    """The layer chain of a VGG."""
    convolutions = (convolution_layer(name, each, pooled=pooled) for name, each, pooled in shape.convolutions())
    # Parts of the flattened channels are whole channels.
    first, *others = shape.classifier_widths
    features = (
        Dim(name=FEATURE, size=first, units=shape.channels[-1]),
        *(Dim(name=FEATURE, size=each) for each in others),
    )
    *hidden, last = features
    products = (_dense_layer(f"classifier{index}", feature) for index, feature in enumerate(hidden, start=1))
    head = image_head(f"classifier{len(features)}", feature=last, classes=shape.classes)
    return Chain(layers=(*convolutions, *products, head))


def _dense_layer(name: str, feature: Dim) -> LayerCounts:
    out, dims = Dim(name=WIDTH, size=CLASSIFIER_WIDTH), (SAMPLE, WIDTH)
    relu = elementwise(
        "relu",
        ("raised",),
        TensorCounts(name=OUTPUT, dims=dims, elements=out.size),
        TensorCounts(name="activated", dims=dims, elements=out.size, saved=True),
        mask(out),
        over=(out,),
        working=out.size,
    )
    product = linear("product", INPUT, made={"raised": out.size}, given=feature, out=out, working=feature.size)
    return layer_of(name, (product, relu), kind="dense", saved_input=feature.size)


def _entry(depth: int, repeats: tuple[int, ...], *, published_params: int) -> ModelEntry:
    shape = VggShape(repeats=repeats)
    return ModelEntry(
        name=f"vgg{depth}",
        summary=f"{sum(repeats)} convolutions and 3 linear layers on 224 x 224",
        source=f"Simonyan and Zisserman 2015, table 1; torchvision vgg{depth}",
        chain=lambda _tokens: vgg(shape),
        shape=shape,
        published_params=published_params,
    )


VGG16_CIFAR = VggShape(repeats=(2, 2, 3, 3, 3), side=32, classes=10, hidden_layers=0)
ENTRIES = (
    _entry(16, (2, 2, 3, 3, 3), published_params=138_357_544),
    _entry(19, (2, 2, 4, 4, 4), published_params=143_667_240),
    ModelEntry(
        name="vgg16-cifar",
        summary="13 convolutions and 1 linear layer on 32 x 32",
        source="the convolutions of VGG-16 on CIFAR-10 (Krizhevsky 2009), without batch norm",
        chain=lambda _tokens: vgg(VGG16_CIFAR),
        shape=VGG16_CIFAR,
    ),
)
