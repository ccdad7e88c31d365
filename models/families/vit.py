"""Vision transformers.

Patches of `p x p x 3` elements become tokens, and one class token is added: `s = (224 / p)^2 + 1`. Blocks are as in a
GPT without dropout. There is no sequence length to choose.

- patch embedding: parameters `3 p^2 h + h + h + s h` (linear layer, class token, positions), forward FLOPs
  `2 (s - 1) 3 p^2 h`; saved: the image; working: the gradient of its output
- head: final LayerNorm `2 h` and a classifier on the class token; it saves all tokens it is given, `s h`
- under tensor parallelism both are replicated; only the blocks are sharded
"""

from dataclasses import dataclass

from stagecut.models.families.chain import Chain, LayerCounts, layer_of
from stagecut.models.families.convolution import CHANNEL, PIXELS
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.image_head import FEATURE, image_head
from stagecut.models.families.operators import STATE, Dim, OperatorCounts, TensorCounts, WeightCounts, splits
from stagecut.models.families.transformer import Residual, dense_blocks, first_token, norm
from stagecut.planner.core.operators.operators import HIDDEN, INPUT, OUTPUT, SAMPLE, TOKEN, Port

IMAGE_SIDE = 224
IMAGE_CHANNELS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class VitShape:
    """Widths and counts of a vision transformer."""

    blocks: int
    hidden: int
    heads: int
    patch: int = 16
    """Side of a patch in pixels."""

    @property
    def tokens(self) -> int:
        """Patches and the class token."""
        return (IMAGE_SIDE // self.patch) ** 2 + 1


def vit(shape: VitShape) -> Chain:
    """The layer chain of a vision transformer."""
    residual = Residual(tokens=shape.tokens, hidden=shape.hidden, dropout=False)
    blocks = dense_blocks(shape.blocks, residual, heads=shape.heads, width=4 * shape.hidden)
    return Chain(layers=(_patch_embedding(shape, residual), *blocks, _head(residual)))


def _patch_embedding(shape: VitShape, residual: Residual) -> LayerCounts:
    patch, hidden, elements = IMAGE_CHANNELS * shape.patch**2, shape.hidden, shape.tokens * shape.hidden
    operator = OperatorCounts(
        name="patches",
        kind="linear",
        inputs=(Port(tensor=INPUT, dims=(SAMPLE, CHANNEL, *PIXELS)),),
        outputs=(TensorCounts(name=OUTPUT, dims=STATE, elements=elements),),
        weights=(
            WeightCounts(name="weight", dims=(HIDDEN, "patch"), elements=hidden * patch),
            WeightCounts(name="bias", dims=(HIDDEN,), elements=hidden),
            WeightCounts(name="class_token", dims=(HIDDEN,), elements=hidden),
            WeightCounts(name="positions", dims=(TOKEN, HIDDEN), elements=elements),
        ),
        splits=splits(residual.token, residual.wide),
        forward_flops=2 * (shape.tokens - 1) * hidden * patch,
        working=elements,
    )
    return layer_of("embedding", (operator,), kind="embedding", saved_input=IMAGE_CHANNELS * IMAGE_SIDE**2)


def _head(residual: Residual) -> LayerCounts:
    """The norm is computed for the class token only."""
    given, wide = residual.tokens * residual.hidden, residual.wide
    pooled = TensorCounts(name="pooled", dims=(SAMPLE, HIDDEN), elements=wide.size, saved=True)
    operators = (first_token(residual, working=given), norm("first token", pooled, wide=wide, working=wide.size))
    return image_head("head", *operators, feature=Dim(name=FEATURE, size=wide.size), pooled_from=given)


VIT_LARGE = VitShape(blocks=24, hidden=1024, heads=16)
ENTRIES = (
    ModelEntry(
        name="vit-large",
        summary="vision transformer, 24 blocks, hidden 1024, 16 heads, patches of 16 x 16 on 224 x 224",
        source="Dosovitskiy et al. 2021, table 1 (307 M); torchvision vit_l_16 counts 304 326 632",
        chain=lambda _tokens: vit(VIT_LARGE),
        shape=VIT_LARGE,
        published_params=304_326_632,
    ),
)
