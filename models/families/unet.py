"""U-Net.

Four levels down, two convolutions at the bottom, four levels up; the 23 convolutions of the paper are one layer
each. Convolutions are padded (the paper's are not); images are 512 x 512 with one channel, and two classes per pixel.
There is no sequence length.

- `downN.conv2` ends with the max pooling: its output is the pooled tensor, and the tensor before pooling leaves it
  as a **skip edge** to `upN.conv1`, where it is concatenated. Every boundary between the two carries it.
- `upN.grow` is a `2 x 2` transposed convolution that doubles the side: `4 c o + o` parameters, `2 c o y^2`
  FLOPs on an output of `y x y`
- convolutions save their input, with pooling also the tensor before it and 8 bytes per pooled element; `upN.conv1`
  saves the concatenated tensor, a copy
- working: gradients of input, convolution output and pooled output
- the head is a `1 x 1` convolution and the loss over all `y^2` pixels: log-probabilities `4 x 2 y^2` bytes
  and labels `8 y^2` bytes saved; working: gradients of its input and of the logits, and the latter in fp32
"""

from dataclasses import dataclass, replace

from stagecut.models.families.chain import FP32_BYTES, INDEX_BYTES, Chain, LayerCounts, SkipCount
from stagecut.models.families.convolution import Convolution, convolution_layer
from stagecut.models.families.entry import ModelEntry

IMAGE_CHANNELS = 1
NUM_CLASSES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class UnetShape:
    """Widths of a U-Net."""

    side: int = 512
    """Side of the image in pixels; halved at every level."""
    widths: tuple[int, ...] = (64, 128, 256, 512)
    """Channels of the levels, from the top; the bottom has twice the last."""

    def side_at(self, level: int) -> int:
        """Side of the tensors of a level in pixels."""
        return self.side >> level


def unet(shape: UnetShape) -> Chain:
    """The layer chain of a U-Net with one skip edge per level."""
    layers = (*_downward(shape), *_bottom(shape), *_upward(shape), _head(shape))
    index = {layer.name: place for place, layer in enumerate(layers)}
    skips = tuple(
        SkipCount(
            source=index[f"down{level}.conv2"],
            target=index[f"up{level}.conv1"],
            elements=width * shape.side_at(level) ** 2,
        )
        for level, width in enumerate(shape.widths)
    )
    return Chain(layers=layers, skips=skips)


def _downward(shape: UnetShape) -> tuple[LayerCounts, ...]:
    inputs = (IMAGE_CHANNELS, *shape.widths)
    return tuple(
        layer
        for level, width in enumerate(shape.widths)
        for layer in (
            _convolution_layer(f"down{level}.conv1", inputs[level], width, side=shape.side_at(level)),
            _convolution_layer(f"down{level}.conv2", width, width, side=shape.side_at(level), pooled=True),
        )
    )


def _bottom(shape: UnetShape) -> tuple[LayerCounts, ...]:
    width, side = shape.widths[-1], shape.side_at(len(shape.widths))
    return (
        _convolution_layer("bottom.conv1", width, 2 * width, side=side),
        _convolution_layer("bottom.conv2", 2 * width, 2 * width, side=side),
    )


def _upward(shape: UnetShape) -> tuple[LayerCounts, ...]:
    return tuple(
        layer
        for level, width in reversed(tuple(enumerate(shape.widths)))
        for layer in (
            _growing_layer(f"up{level}.grow", width, side=shape.side_at(level)),
            _convolution_layer(f"up{level}.conv1", 2 * width, width, side=shape.side_at(level)),
            _convolution_layer(f"up{level}.conv2", width, width, side=shape.side_at(level)),
        )
    )


def _convolution_layer(name: str, inputs: int, outputs: int, *, side: int, pooled: bool = False) -> LayerCounts:
    """One operator: how the tensor of a skip edge is divided has no word yet."""
    convolution = Convolution(inputs=inputs, outputs=outputs, kernel=3, side=side)
    return replace(convolution_layer(name, convolution, pooled=pooled), operators=())


def _growing_layer(name: str, outputs: int, *, side: int) -> LayerCounts:
    """Halve the channels and double the side; each output pixel uses one of four kernels."""
    inputs = 2 * outputs
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


def _head(shape: UnetShape) -> LayerCounts:
    width, pixels = shape.widths[0], shape.side**2
    convolution = Convolution(inputs=width, outputs=NUM_CLASSES, kernel=1, side=shape.side)
    return LayerCounts(
        name="head",
        kind="head",
        params=convolution.weights + convolution.outputs,
        forward_flops=convolution.forward_flops,
        saved=width * pixels,
        saved_fixed_bytes=FP32_BYTES * convolution.output + INDEX_BYTES * pixels,
        working=width * pixels + convolution.output,
        working_fixed_bytes=FP32_BYTES * convolution.output,
    )


ENTRIES = (
    ModelEntry(
        name="unet",
        summary="23 convolutions on 512 x 512, four long skip edges",
        source="Ronneberger et al. 2015, figure 1, with padded convolutions; commonly reported as 31.0 M",
        chain=lambda _tokens: unet(UnetShape()),
        shape=UnetShape(),
        published_params=31.0e6,
    ),
)
