"""Llama decoders.

RMSNorm, rotary positions (no parameters, no limit on the sequence), grouped queries with key width
`k = h / a x key heads`, no biases, no dropout, head not tied. The attention part and the head are as in
any transformer. The feed-forward part is SwiGLU, `down(silu(gate(x)) * up(x))`:

- parameters: `3 h f + h`
- forward FLOPs: `6 s h f`
- saved: the part's input and the normed input, `2 s h`; gate, silu(gate), up and their product, `4 s f`
- working: gradients of the output, the product, gate and up: `s (h + 3 f)`

`llama-mini` trains on a CPU.
"""

from dataclasses import dataclass
from functools import partial

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.token_ends import token_embedding, token_head
from stagecut.models.families.transformer import FeedForward, Residual, attention_part, repeated


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaShape:
    """Widths and counts of a Llama."""

    blocks: int
    hidden: int
    heads: int
    key_heads: int
    width: int
    """Width of the feed-forward part."""
    vocabulary: int

    @property
    def key_width(self) -> int:
        """Elements of the keys, and of the values, per token."""
        return self.hidden // self.heads * self.key_heads


def llama(shape: LlamaShape, tokens: int) -> Chain:
    """The layer chain of a Llama."""
    return decoder_chain(shape, tokens, feed_forward=_swiglu_part(shape, tokens))


def decoder_residual(shape: LlamaShape, tokens: int) -> Residual:
    """What the parts of its blocks have in common."""
    return Residual(tokens=tokens, hidden=shape.hidden, biased=False, dropout=False)


def decoder_chain(shape: LlamaShape, tokens: int, *, feed_forward: LayerCounts) -> Chain:
    """Embedding, blocks and head, each block with this feed-forward part."""
    residual = decoder_residual(shape, tokens)
    attention = attention_part(residual, heads=shape.heads, key_heads=shape.key_heads)
    return Chain(
        layers=(
            token_embedding(residual, vocabulary=shape.vocabulary),
            *repeated(shape.blocks, attention, feed_forward),
            token_head(residual, vocabulary=shape.vocabulary, tied=False),
        )
    )


def _swiglu_part(shape: LlamaShape, tokens: int) -> LayerCounts:
    """Feed-forward part with SwiGLU and RMSNorm."""
    residual = decoder_residual(shape, tokens)
    return residual.part("feed-forward", partial(FeedForward(width=shape.width, gated=True).operators, residual))


def _entry(
    name: str,
    shape: LlamaShape,
    *,
    published_params: float | None,
    source: str = "Llama Team 2024, table 3; count of the released weights",
    default_sequence: int = 8192,
) -> ModelEntry:
    return ModelEntry(
        name=name,
        summary=(
            f"decoder, {shape.blocks} blocks, hidden {shape.hidden}, "
            f"{shape.heads} heads on {shape.key_heads} key heads, SwiGLU {shape.width}"
        ),
        source=source,
        chain=partial(llama, shape),
        shape=shape,
        published_params=published_params,
        default_sequence=default_sequence,
    )


ENTRIES = (
    _entry(
        "llama3-8b",
        LlamaShape(blocks=32, hidden=4096, heads=32, key_heads=8, width=14336, vocabulary=128256),
        published_params=8.03e9,
    ),
    _entry(
        "llama3-70b",
        LlamaShape(blocks=80, hidden=8192, heads=64, key_heads=8, width=28672, vocabulary=128256),
        published_params=70.55e9,
    ),
    _entry(
        "llama-mini",
        LlamaShape(blocks=4, hidden=128, heads=4, key_heads=2, width=384, vocabulary=2048),
        published_params=None,
        source="a small Llama 3",
        default_sequence=256,
    ),
)
