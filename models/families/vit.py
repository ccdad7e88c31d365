"""Vision transformers.

Patches of `p x p x 3` elements become tokens, and one class token is added: `s = (224 / p)^2 + 1`. Blocks are as in a
GPT without dropout. There is no sequence length to choose.

- patch embedding: parameters `3 p^2 h + h + h + s h` (linear layer, class token, positions), forward FLOPs
  `2 (s - 1) 3 p^2 h`; saved: the image; working: the gradient of its output
- head: final LayerNorm `2 h` and a classifier on the class token; it saves all tokens it is given, `s h`
- under tensor parallelism both are replicated; only the blocks are sharded
"""

from dataclasses import dataclass

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.image_head import image_head
from stagecut.models.families.transformer import dense_blocks

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
    tokens, hidden = shape.tokens, shape.hidden
    blocks = dense_blocks(
        shape.blocks, tokens=tokens, hidden=hidden, heads=shape.heads, width=4 * hidden, dropout=False
    )
    head = image_head("head", width=hidden, pooled_from=tokens * hidden, norm_params=2 * hidden)
    return Chain(layers=(_patch_embedding(shape), *blocks, head))


def _patch_embedding(shape: VitShape) -> LayerCounts:
    weights = IMAGE_CHANNELS * shape.patch**2 * shape.hidden
    output = shape.tokens * shape.hidden
    return LayerCounts(
        name="embedding",
        kind="embedding",
        params=weights + 2 * shape.hidden + output,
        forward_flops=2 * (shape.tokens - 1) * weights,
        saved=IMAGE_CHANNELS * IMAGE_SIDE**2,
        output=output,
        working=output,
    )


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
