"""VGG networks.

One layer per `3 x 3` convolution with its ReLU, and with the max pooling that follows it where one does; one
layer per classifier product. Images of 224 x 224, no batch norm. No sequence to choose.

- convolution: saves its input; with pooling also the tensor before pooling and the place of each maximum,
  8 bytes per pooled number; working: gradients of input, convolution output and pooled output
- classifier: two products of width 4096 with ReLU and dropout, each saving its input, the output of ReLU and a
  mask of 4096 bytes; then the image head
"""

from functools import partial

from models.chain import INDEX_BYTES, MASK_BYTES, Chain, LayerCounts
from models.convolution import Convolution
from models.entry import ModelEntry
from models.image_head import image_head

IMAGE_SIDE = 224
CHANNELS = (64, 128, 256, 512, 512)
"""Of the five groups of convolutions; each ends with a pooling that halves the side."""
CLASSIFIER_WIDTH = 4096


def vgg(repeats: tuple[int, ...], _tokens: int) -> Chain:
    """The layer chain of a VGG with that many convolutions per group."""
    layers: list[LayerCounts] = []
    inputs, side = 3, IMAGE_SIDE
    for group, (channels, repeat) in enumerate(zip(CHANNELS, repeats, strict=True), start=1):
        for index in range(1, repeat + 1):
            convolution = Convolution(inputs=inputs, outputs=channels, kernel=3, side=side)
            layers.append(_convolution_layer(f"conv{group}-{index}", convolution, pooled=index == repeat))
            inputs = channels
        side //= 2
    return Chain(layers=(*layers, *_classifier(inputs * side**2)))


def _convolution_layer(name: str, convolution: Convolution, *, pooled: bool) -> LayerCounts:
    given = convolution.inputs * convolution.side**2
    output = convolution.output // 4 if pooled else convolution.output
    return LayerCounts(
        name=name,
        kind="convolution",
        params=convolution.params,
        forward_flops=convolution.forward_flops,
        saved=given + convolution.output * pooled,
        saved_fixed_bytes=INDEX_BYTES * output * pooled,
        output=output,
        working=given + convolution.output + output * pooled,
    )


def _classifier(width: int) -> tuple[LayerCounts, ...]:
    return (
        _dense_layer("classifier1", width),
        _dense_layer("classifier2", CLASSIFIER_WIDTH),
        image_head("classifier3", width=CLASSIFIER_WIDTH),
    )


def _dense_layer(name: str, width: int) -> LayerCounts:
    return LayerCounts(
        name=name,
        kind="dense",
        params=width * CLASSIFIER_WIDTH + CLASSIFIER_WIDTH,
        forward_flops=2 * width * CLASSIFIER_WIDTH,
        saved=width + CLASSIFIER_WIDTH,
        saved_fixed_bytes=MASK_BYTES * CLASSIFIER_WIDTH,
        output=CLASSIFIER_WIDTH,
        working=width + CLASSIFIER_WIDTH,
    )


def _entry(depth: int, repeats: tuple[int, ...], *, published_params: int) -> ModelEntry:
    return ModelEntry(
        name=f"vgg{depth}",
        summary=f"{sum(repeats)} convolutions and 3 classifier products on 224 x 224",
        source=f"Simonyan and Zisserman 2015, table 1; torchvision vgg{depth}",
        chain=partial(vgg, repeats),
        published_params=published_params,
    )


ENTRIES = (
    _entry(16, (2, 2, 3, 3, 3), published_params=138_357_544),
    _entry(19, (2, 2, 4, 4, 4), published_params=143_667_240),
)
