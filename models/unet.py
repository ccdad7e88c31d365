"""U-Net.

Four levels down, two convolutions at the bottom, four levels up; the 23 convolutions of the paper are one layer
each. Convolutions keep the side (the paper's lose a border), images are 512 x 512 with one channel, two classes
per pixel. No sequence to choose.

- `downN.conv2` ends with the max pooling: its output is the pooled tensor, and the tensor before pooling leaves it
  as a **skip edge** to `upN.conv1`, where it is concatenated. Every boundary between the two carries it.
- `upN.grow` is a `2 x 2` transposed convolution that doubles the side: `4 c o + o` parameters, `2 c o y^2`
  FLOPs on an output of `y x y`
- convolutions save their input, with pooling also the tensor before it and 8 bytes per pooled number; `upN.conv1`
  saves the concatenated tensor, a copy
- working: gradients of input, convolution output and pooled output
- the head is a `1 x 1` convolution and the loss over all `y^2` pixels: log-probabilities `4 x 2 y^2` bytes
  and labels `8 y^2` bytes saved; working: gradients of its input and of the logits, and the latter in fp32
"""

from models.chain import FP32_BYTES, INDEX_BYTES, Chain, LayerCounts, SkipCount
from models.convolution import Convolution
from models.entry import ModelEntry

IMAGE_SIDE = 512
WIDTHS = (64, 128, 256, 512)
"""Channels of the levels, from the top."""
BOTTOM_WIDTH = 1024
NUM_CLASSES = 2


def unet() -> Chain:
    """The layer chain of a U-Net with its four skip edges."""
    layers = (*_downward(), *_bottom(), *_upward(), _head())
    index = {layer.name: place for place, layer in enumerate(layers)}
    skips = tuple(
        SkipCount(
            source=index[f"down{level}.conv2"],
            target=index[f"up{level}.conv1"],
            numbers=width * _side(level) ** 2,
        )
        for level, width in enumerate(WIDTHS)
    )
    return Chain(layers=layers, skips=skips)


def _side(level: int) -> int:
    return IMAGE_SIDE >> level


def _downward() -> tuple[LayerCounts, ...]:
    inputs = (1, *WIDTHS)
    return tuple(
        layer
        for level, width in enumerate(WIDTHS)
        for layer in (
            _convolution_layer(f"down{level}.conv1", inputs[level], width, level=level),
            _convolution_layer(f"down{level}.conv2", width, width, level=level, pooled=True),
        )
    )


def _bottom() -> tuple[LayerCounts, ...]:
    level = len(WIDTHS)
    return (
        _convolution_layer("bottom.conv1", WIDTHS[-1], BOTTOM_WIDTH, level=level),
        _convolution_layer("bottom.conv2", BOTTOM_WIDTH, BOTTOM_WIDTH, level=level),
    )


def _upward() -> tuple[LayerCounts, ...]:
    return tuple(
        layer
        for level, width in reversed(tuple(enumerate(WIDTHS)))
        for layer in (
            _growing_layer(f"up{level}.grow", width, level=level),
            _convolution_layer(f"up{level}.conv1", 2 * width, width, level=level),
            _convolution_layer(f"up{level}.conv2", width, width, level=level),
        )
    )


def _convolution_layer(name: str, inputs: int, outputs: int, *, level: int, pooled: bool = False) -> LayerCounts:
    convolution = Convolution(inputs=inputs, outputs=outputs, kernel=3, side=_side(level))
    given = inputs * convolution.side**2
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


def _growing_layer(name: str, outputs: int, *, level: int) -> LayerCounts:
    """Halve the channels and double the side; each output pixel is the product with one of four kernels."""
    inputs, side = 2 * outputs, _side(level)
    given, output = inputs * (side // 2) ** 2, outputs * side**2
    return LayerCounts(
        name=name,
        kind="convolution",
        params=4 * inputs * outputs + outputs,
        forward_flops=2 * inputs * outputs * side**2,
        saved=given,
        output=output,
        working=given + output,
    )


def _head() -> LayerCounts:
    convolution = Convolution(inputs=WIDTHS[0], outputs=NUM_CLASSES, kernel=1, side=IMAGE_SIDE)
    pixels = IMAGE_SIDE**2
    return LayerCounts(
        name="head",
        kind="head",
        params=convolution.params,
        forward_flops=convolution.forward_flops,
        saved=WIDTHS[0] * pixels,
        saved_fixed_bytes=FP32_BYTES * convolution.output + INDEX_BYTES * pixels,
        working=WIDTHS[0] * pixels + convolution.output,
        working_fixed_bytes=FP32_BYTES * convolution.output,
    )


ENTRIES = (
    ModelEntry(
        name="unet",
        summary="23 convolutions on 512 x 512, four long skip edges",
        source="Ronneberger et al. 2015, figure 1, with padded convolutions; commonly reported as 31.0 M",
        chain=lambda _tokens: unet(),
        published_params=31.0e6,
    ),
)
