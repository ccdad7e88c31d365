"""Residual networks.

One layer for the stem (`7 x 7` convolution, batch norm, ReLU, max pooling), one per bottleneck block, one for
the head: the skip edge inside a block is never cut. Images are 224 x 224; the stride is in the `3 x 3` convolution.
There is no sequence length.

- block of width `w`: `1 x 1` to `w`, `3 x 3` on `w`, `1 x 1` to `4 w`, each with a batch norm and no bias, and a
  `1 x 1` projection where the shape changes
- saved: the block's input; the first two convolutions' outputs before and after their batch norm and ReLU; the last
  convolution's output, and the projection's
- working: gradients of the input and of the output, each once per branch
- stem: saves the image, the convolution's output before and after its batch norm, and the pooling indices, 8 bytes
  per pooled element; working: gradients of the pooled output and of both sides of the batch norm
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from stagecut.models.families.chain import Chain, LayerCounts, layer_of
from stagecut.models.families.convolution import (
    CHANNEL,
    PIXELS,
    Convolution,
    batch_norm,
    convolved,
    image,
    max_pooling,
)
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.image_head import FEATURE, image_head
from stagecut.models.families.operators import Dim, OperatorCounts, TensorCounts, elementwise, splits
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, SUM, Port

WIDTHS = (64, 128, 256, 512)
EXPANSION = 4
IMAGE_SIDE = 224
STEM_CHANNELS = 64
FIRST_SIDE = 56
"""Side of the stem's output in pixels."""
LAST_SIDE = FIRST_SIDE // 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Bottleneck:
    """One residual block."""

    inputs: int
    """Channels."""
    width: int
    side: int
    """Side of the output in pixels."""
    stride: int

    @property
    def convolutions(self) -> tuple[Convolution, ...]:
        """The convolutions of the main branch, then the projection if there is one."""
        outputs, before = EXPANSION * self.width, self.side * self.stride
        main = (
            _convolution(self.inputs, self.width, kernel=1, side=before),
            _convolution(self.width, self.width, kernel=3, side=self.side),
            _convolution(self.width, outputs, kernel=1, side=self.side),
        )
        if self.stride == 1 and self.inputs == outputs:
            return main
        return (*main, _convolution(self.inputs, outputs, kernel=1, side=self.side))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResnetShape:
    """Counts of a residual network."""

    repeats: tuple[int, ...]
    """Blocks of each group."""

    def blocks(self) -> Iterator[tuple[str, Bottleneck]]:
        """All blocks with their names."""
        inputs, side = STEM_CHANNELS, FIRST_SIDE
        for group, (width, repeat) in enumerate(zip(WIDTHS, self.repeats, strict=True), start=1):
            for index in range(1, repeat + 1):
                stride = 2 if group > 1 and index == 1 else 1
                side //= stride
                yield f"block{group}-{index}", Bottleneck(inputs=inputs, width=width, side=side, stride=stride)
                inputs = EXPANSION * width


def resnet(shape: ResnetShape) -> Chain:
    """The layer chain of a residual network."""
    blocks = tuple(_block_layer(name, block) for name, block in shape.blocks())
    return Chain(layers=(_stem(), *blocks, _head()))


def _convolution(inputs: int, outputs: int, *, kernel: int, side: int) -> Convolution:
    return Convolution(inputs=inputs, outputs=outputs, kernel=kernel, side=side, biased=False)


def _stem() -> LayerCounts:
    convolution = _convolution(3, STEM_CHANNELS, kernel=7, side=IMAGE_SIDE // 2)
    working = 2 * convolution.output
    normed = _normed("convolution", INPUT, "activated", convolution, relu=True, working=working)
    operators = (*normed, max_pooling(convolution))
    return layer_of("stem", operators, kind="convolution", saved_input=3 * IMAGE_SIDE**2)


def _normed(
    name: str, taken: str, made: str, convolution: Convolution, *, relu: bool, working: int = 0
) -> tuple[OperatorCounts, OperatorCounts]:
    """A convolution with its batch norm and, if there is one, its ReLU."""
    between = f"{made} before norm"
    return (
        convolved(name, taken, between, convolution, saved=True, working=working),
        batch_norm(f"{name} norm", between, made, convolution, relu=relu),
    )


def _block_layer(name: str, block: Bottleneck) -> LayerCounts:
    reduce, spatial, widen, *project = block.convolutions
    given = block.inputs * (block.side * block.stride) ** 2
    return layer_of(
        name,
        (
            *_normed("reduce", INPUT, "reduced", reduce, relu=True, working=2 * given),
            *_normed("spatial", "reduced", "filtered", spatial, relu=True),
            *_normed("widen", "filtered", "widened", widen, relu=False),
            *(each for shortcut in project for each in _normed("project", INPUT, "projected", shortcut, relu=False)),
            elementwise(
                "sum",
                ("widened", "projected" if project else INPUT),
                image(OUTPUT, widen.output, saved=False),
                kind=SUM,
                over=(widen.channel,),
                whole=PIXELS,
                working=2 * widen.output,
            ),
        ),
        kind="residual-block",
        saved_input=given,
    )


def _head() -> LayerCounts:
    """Means over all pixels, and a classifier."""
    channel, given = Dim(name=CHANNEL, size=EXPANSION * WIDTHS[-1]), EXPANSION * WIDTHS[-1] * LAST_SIDE**2
    pool = OperatorCounts(
        name="pool",
        kind=SUM,
        inputs=(Port(tensor=INPUT, dims=(SAMPLE, CHANNEL, *PIXELS)),),
        outputs=(TensorCounts(name="pooled", dims=(SAMPLE, CHANNEL), elements=channel.size, saved=True),),
        splits=splits(channel),
        working=given + channel.size,
        passes_partial=True,
    )
    return image_head("head", pool, feature=replace(channel, name=FEATURE), pooled_from=given)


def _entry(depth: int, repeats: tuple[int, ...], *, published_params: int) -> ModelEntry:
    shape = ResnetShape(repeats=repeats)
    return ModelEntry(
        name=f"resnet{depth}",
        summary=f"stem, {sum(repeats)} bottleneck blocks and head on 224 x 224",
        source=f"He et al. 2016, table 1; torchvision resnet{depth}",
        chain=lambda _tokens: resnet(shape),
        shape=shape,
        published_params=published_params,
    )


ENTRIES = (
    _entry(50, (3, 4, 6, 3), published_params=25_557_032),
    _entry(152, (3, 8, 36, 3), published_params=60_192_808),
)
