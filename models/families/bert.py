"""BERT encoders.

Blocks as in a GPT with the norms after the sums, which changes no count. The embedding adds two segment
vectors and a LayerNorm: `(v + p + 2) h + 2 h` parameters, and saves the norm's input, `s h`, and the segment
ids, `8 s` bytes, in addition. The head is that of pre-training:

- parameters: dense layer and LayerNorm of the masked-token head, `h^2 + 3 h`, its output bias `v`, the pooler
  `h^2 + h`, next-sentence prediction `2 h + 2`; the token matrix is tied to the embedding's
- forward FLOPs: `2 s h^2 + 2 s h v + 2 h^2 + 4 h`; the loss is computed over all positions
- saved: input, GeLU's input and output, the norm's output: `4 s h`, then as any token head
- under tensor parallelism the dense layers are assumed to be sharded like the token matrix

`bert-mini` has no dropout and trains on a CPU.
"""

from dataclasses import dataclass, replace
from functools import partial

from stagecut.models.families.chain import INDEX_BYTES, Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.transformer import dense_blocks, token_embedding, token_head


@dataclass(frozen=True, slots=True, kw_only=True)
class BertShape:
    """Widths and counts of a BERT."""

    blocks: int
    hidden: int
    heads: int
    vocabulary: int = 30522
    positions: int = 512
    segments: int = 2
    dropout: float = 0.1
    """Probability; 0: no masks are saved."""


def bert(shape: BertShape, tokens: int) -> Chain:
    """The layer chain of a BERT in pre-training."""
    blocks = dense_blocks(
        shape.blocks,
        tokens=tokens,
        hidden=shape.hidden,
        heads=shape.heads,
        width=4 * shape.hidden,
        dropout=shape.dropout > 0,
    )
    return Chain(layers=(_embedding(shape, tokens), *blocks, _head(shape, tokens)))


def _embedding(shape: BertShape, tokens: int) -> LayerCounts:
    rows = shape.vocabulary + shape.positions + shape.segments
    params = (rows + 2) * shape.hidden
    plain = token_embedding(tokens=tokens, hidden=shape.hidden, params=params, dropout=shape.dropout > 0)
    return replace(
        plain,
        saved=tokens * shape.hidden,
        saved_fixed_bytes=plain.saved_fixed_bytes + INDEX_BYTES * tokens,
    )


def _head(shape: BertShape, tokens: int) -> LayerCounts:
    hidden = shape.hidden
    masked_tokens = hidden * hidden + 3 * hidden + shape.vocabulary
    next_sentence = hidden * hidden + hidden + 2 * hidden + 2
    owned = masked_tokens + next_sentence
    plain = token_head(tokens=tokens, hidden=hidden, vocabulary=shape.vocabulary, params=owned, tied=True)
    return replace(
        plain,
        forward_flops=plain.forward_flops + 2 * (tokens + 1) * hidden * hidden + 4 * hidden,
        saved=4 * tokens * hidden,
    )


def _entry(
    name: str, shape: BertShape, *, published_params: float | None, source: str, default_sequence: int
) -> ModelEntry:
    return ModelEntry(
        name=name,
        summary=f"encoder, {shape.blocks} blocks, hidden {shape.hidden}, {shape.heads} heads, tied pre-training head",
        source=source,
        chain=partial(bert, shape),
        shape=shape,
        published_params=published_params,
        default_sequence=default_sequence,
        max_sequence=shape.positions,
    )


ENTRIES = (
    _entry(
        "bert-large",
        BertShape(blocks=24, hidden=1024, heads=16),
        published_params=336e6,
        source="Devlin et al. 2019 say 340 M; the released checkpoint counts 336 M with its pre-training head",
        default_sequence=512,
    ),
    _entry(
        "bert-mini",
        BertShape(blocks=4, hidden=256, heads=4, vocabulary=4096, dropout=0.0),
        published_params=None,
        source="blocks of BERT-Mini (Turc et al. 2019), 4096 tokens instead of 30522, without dropout",
        default_sequence=128,
    ),
)
