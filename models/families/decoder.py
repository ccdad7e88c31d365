"""Decoders of configuration files.

`plan solve --model config.json` reads a configuration of Hugging Face transformers: embedding, for each block an
attention and a feed-forward part, and head are as above, each with the widths of its block, which may differ from block
to block. Beyond what is said there:

- a head width of its own; norms of every query and key (Qwen3, Gemma 3), which save what they take; biases where the
  type has them
- a second norm between a part and its residual sum (Gemma 2 and 3): `h` parameters, and the part's output is saved
- attention and feed-forward part side by side (Phi, GPT-NeoX): such a block is one layer, which all-reduces twice
- a window of `w` tokens (Mistral, Gemma 2, Phi-3) has `4 s min(s, w) a d` FLOPs for heads of `d` elements, not
  `4 s^2 a d`
"""

from dataclasses import dataclass
from functools import cache, partial

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.experts import Experts
from stagecut.models.families.latent_attention import LatentAttention
from stagecut.models.families.token_ends import token_embedding, token_head
from stagecut.models.families.transformer import Attention, FeedForward, Residual, repeated_as


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block."""

    attention: Attention | LatentAttention
    feed_forward: FeedForward | Experts


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderShape:
    """Widths and blocks of a decoder."""

    blocks: tuple[Block, ...]
    hidden: int
    vocabulary: int
    tied: bool
    head_biased: bool = False
    layer_norm: bool = False
    """Whether norms are LayerNorms, otherwise RMSNorms."""
    norm_last: bool = False
    """Whether there is a second norm before each residual sum."""
    parallel_norms: int = 0
    """Norms of a block whose two parts are side by side; 0: they follow each other."""
    positions: int = 0
    """Learned ones; 0: none."""
    dropout: float = 0.0


def decoder(shape: DecoderShape, tokens: int) -> Chain:
    """The layer chain of a decoder."""
    residual = Residual(
        tokens=tokens,
        hidden=shape.hidden,
        biased=shape.layer_norm,
        dropout=shape.dropout > 0,
        norm_last=shape.norm_last,
    )
    parts = cache(partial(_parts, residual, shape.parallel_norms))
    return Chain(
        layers=(
            token_embedding(residual, vocabulary=shape.vocabulary, positions=shape.positions),
            *(part for index, block in enumerate(shape.blocks) for part in repeated_as(index, *parts(block))),
            token_head(residual, vocabulary=shape.vocabulary, tied=shape.tied, biased=shape.head_biased),
        )
    )


def _parts(residual: Residual, parallel_norms: int, block: Block) -> tuple[LayerCounts, ...]:
    attention = partial(block.attention.operators, residual)
    feed_forward = partial(block.feed_forward.operators, residual)
    if parallel_norms:
        return (residual.parallel_part(attention, feed_forward, norms=parallel_norms),)
    kind = "experts" if isinstance(block.feed_forward, Experts) else "feed-forward"
    return residual.part("attention", attention), residual.part(kind, feed_forward)
