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

from dataclasses import dataclass
from functools import partial

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.image_head import CLASS
from stagecut.models.families.operators import (
    STATE,
    Dim,
    OperatorCounts,
    TensorCounts,
    WeightCounts,
    elementwise,
    linear,
    splits,
)
from stagecut.models.families.token_ends import (
    POSITION,
    embedding_layer,
    final_norm,
    head_layer,
    logits,
    lookup,
    token_loss,
)
from stagecut.models.families.transformer import WIDTH, Residual, activation, dense_blocks, first_token, mask, norm
from stagecut.planner.core.operators.operators import HIDDEN, INPUT, OUTPUT, SAMPLE, SUM, Port

NUM_ORDERS = 2
"""Classes of next-sentence prediction."""


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
    width: int | None = None
    """Of the feed-forward part; None: `4 h`."""


def bert(shape: BertShape, tokens: int) -> Chain:
    """The layer chain of a BERT in pre-training."""
    residual = Residual(tokens=tokens, hidden=shape.hidden, dropout=shape.dropout > 0, norm_first=False)
    blocks = dense_blocks(shape.blocks, residual, heads=shape.heads, width=shape.width or 4 * shape.hidden)
    return Chain(layers=(_embedding(shape, residual), *blocks, _head(shape, residual)))


def _embedding(shape: BertShape, residual: Residual) -> LayerCounts:
    token, wide = residual.token, residual.wide
    elements, rows = residual.tokens * residual.hidden, shape.positions + shape.segments
    operators = (
        lookup(residual, shape.vocabulary, made="embedded"),
        elementwise(
            "positions and segments",
            ("embedded",),
            TensorCounts(name="summed", dims=STATE, elements=elements, saved=True),
            over=(token,),
            whole=(HIDDEN,),
            kind=SUM,
            weights=(WeightCounts(name="weight", dims=(POSITION, HIDDEN), elements=rows * residual.hidden),),
        ),
        norm(
            "summed",
            TensorCounts(name=OUTPUT, dims=STATE, elements=elements),
            *((mask(token, wide),) if residual.dropout else ()),
            wide=wide,
            over=(token,),
            working=elements,
        ),
    )
    return embedding_layer(residual, operators, ids=2)


def _head(shape: BertShape, residual: Residual) -> LayerCounts:
    token, wide, feature = residual.token, residual.wide, Dim(name=WIDTH, size=shape.hidden)
    made, vocabulary = {"raised": shape.hidden}, shape.vocabulary
    next_sentence = Port(tensor="next sentence", dims=(SAMPLE, CLASS))
    operators = (
        linear("dense", INPUT, made=made, over=(token,), given=wide, out=feature, saved=True, working=0),
        activation(("raised",), "activated", over=(token, feature), working=0),
        final_norm(residual, "activated"),
        logits(residual, "normed", vocabulary=vocabulary, tied=True, biased=True),
        first_token(residual),
        _next_sentence(residual),
        token_loss(residual, vocabulary=vocabulary, others=(next_sentence,)),
    )
    return head_layer(residual, operators)


def _next_sentence(residual: Residual) -> OperatorCounts:
    """Dense layer, tanh and two classes, divided along the width between."""
    hidden = residual.hidden
    return OperatorCounts(
        name="next sentence",
        kind="linear",
        inputs=(Port(tensor="first token", dims=(SAMPLE, HIDDEN)),),
        outputs=(TensorCounts(name="next sentence", dims=(SAMPLE, CLASS), elements=NUM_ORDERS),),
        weights=(
            WeightCounts(name="pooler.weight", dims=(WIDTH, HIDDEN), elements=hidden * hidden),
            WeightCounts(name="pooler.bias", dims=(WIDTH,), elements=hidden),
            WeightCounts(name="weight", dims=(CLASS, WIDTH), elements=NUM_ORDERS * hidden),
            WeightCounts(name="bias", dims=(CLASS,), elements=NUM_ORDERS),
        ),
        splits=splits(Dim(name=WIDTH, size=hidden)),
        forward_flops=2 * hidden * hidden + 2 * NUM_ORDERS * hidden,
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
