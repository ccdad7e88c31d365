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
from stagecut.models.families.transformer import attention_part, token_embedding, token_head


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
    return Chain(
        layers=(
            llama_embedding(shape, tokens),
            *(
                part
                for block in range(shape.blocks)
                for part in (
                    llama_attention(f"block{block}.attention", shape, tokens=tokens),
                    swiglu_part(f"block{block}.feed-forward", shape, tokens=tokens),
                )
            ),
            llama_head(shape, tokens),
        )
    )


def llama_embedding(shape: LlamaShape, tokens: int) -> LayerCounts:
    """The token matrix only."""
    return token_embedding(tokens=tokens, hidden=shape.hidden, params=shape.vocabulary * shape.hidden, dropout=False)


def llama_attention(name: str, shape: LlamaShape, *, tokens: int) -> LayerCounts:
    """Attention part with grouped queries."""
    return attention_part(
        name,
        tokens=tokens,
        hidden=shape.hidden,
        heads=shape.heads,
        key_width=shape.key_width,
        biased=False,
        dropout=False,
    )


def swiglu_part(name: str, shape: LlamaShape, *, tokens: int) -> LayerCounts:
    """Feed-forward part with SwiGLU and RMSNorm."""
    hidden, width = shape.hidden, shape.width
    return LayerCounts(
        name=name,
        kind="feed-forward",
        params=3 * hidden * width + hidden,
        forward_flops=6 * tokens * hidden * width,
        saved=tokens * (2 * hidden + 4 * width),
        output=tokens * hidden,
        working=tokens * (hidden + 3 * width),
        all_reduced=tokens * hidden,
    )


def llama_head(shape: LlamaShape, tokens: int) -> LayerCounts:
    """RMSNorm and an untied token matrix."""
    return token_head(
        tokens=tokens,
        hidden=shape.hidden,
        vocabulary=shape.vocabulary,
        params=shape.vocabulary * shape.hidden + shape.hidden,
        tied=False,
    )


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
