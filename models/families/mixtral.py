"""Mixtral decoders.

A Llama whose feed-forward part is a router over `E` SwiGLU experts, of which each token uses `t`:

- parameters: `E 3 h f + E h + h`, of which each token uses `t / E` of the experts'
- forward FLOPs: `t 6 s h f + 2 s h E`
- saved: the part's input and the normed input, `2 s h`; router probabilities, `s E`; per chosen expert the
  gathered tokens and their outputs, `2 s h`, and the four tensors of SwiGLU, `4 s f`
- working: the gradient of the output, `s h`, and per chosen expert `s (h + 3 f)`

Tokens are assumed to be spread evenly over the experts. Under tensor parallelism each device has a shard of every
expert, and the sum of the chosen experts' outputs is all-reduced, `s h` elements. Divided by experts, tokens reach them
and return by all-to-alls; divided by width, the operators sum the gradients of a token's `t` copies before they return
to it, which is `t` times as much. The weight of a token travels with it and is not counted: one element beside `h`.
"""

from dataclasses import dataclass, replace
from functools import partial

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.llama import LlamaShape, decoder_chain, decoder_residual
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
from stagecut.models.families.transformer import WIDTH
from stagecut.planner.core.operators import DISPATCH, HIDDEN, SAMPLE, TOKEN, Port

EXPERT = "expert"
CHOICES = (SAMPLE, TOKEN, EXPERT)

NUM_EXPERTS = 8
EXPERTS_PER_TOKEN = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class MixtralShape(LlamaShape):
    """Widths and counts of a Mixtral; `width` is that of one expert."""

    experts: int = NUM_EXPERTS
    experts_per_token: int = EXPERTS_PER_TOKEN


def mixtral(shape: MixtralShape, tokens: int) -> Chain:
    """The layer chain of a Mixtral."""
    return decoder_chain(shape, tokens, feed_forward=_experts_part(shape, tokens))


def _experts_part(shape: MixtralShape, tokens: int) -> LayerCounts:
    """Router and experts of one block."""
    token, expert = Dim(name=TOKEN, size=tokens), Dim(name=EXPERT, size=shape.experts)

    def inner(taken: str) -> tuple[OperatorCounts, ...]:
        return (
            _router(shape, taken, token=token),
            _dispatch(shape, taken, token=token, expert=expert),
            *_swiglu_experts(shape, token=token, expert=expert),
            _combine(shape, token=token, expert=expert),
        )

    return decoder_residual(shape, tokens).part("experts", inner)


def _router(shape: MixtralShape, taken: str, *, token: Dim) -> OperatorCounts:
    made = TensorCounts(name="probabilities", dims=CHOICES, elements=token.size * shape.experts, saved=True)
    product = linear(
        "router",
        taken,
        made={},
        over=(token,),
        given=Dim(name=HIDDEN, size=shape.hidden),
        out=Dim(name=EXPERT, size=shape.experts),
        biased=False,
        working=0,
    )
    return replace(product, outputs=(made,), splits=splits(token), passes_partial=False)


def _dispatch(shape: MixtralShape, taken: str, *, token: Dim, expert: Dim) -> OperatorCounts:
    """Hand every token to its experts; a part of the experts takes its own tokens out of all."""
    rows = token.size * shape.experts_per_token
    return OperatorCounts(
        name="dispatch",
        kind=DISPATCH,
        inputs=(Port(tensor=taken, dims=STATE), Port(tensor="probabilities", dims=CHOICES)),
        outputs=(_of_experts("dispatched", HIDDEN, rows * shape.hidden),),
        splits=splits(token, expert),
    )


def _swiglu_experts(shape: MixtralShape, *, token: Dim, expert: Dim) -> tuple[OperatorCounts, ...]:
    feature, rows = Dim(name=WIDTH, size=shape.width), token.size * shape.experts_per_token
    narrow, matrix = rows * shape.width, shape.width * shape.hidden

    def product(name: str, taken: str, *made: TensorCounts, ends: tuple[str, str]) -> OperatorCounts:
        """A matrix of every expert, with as many rows as it makes tensors times the size of their last dimension."""
        given, out = ends
        weight = WeightCounts(name="weight", dims=(EXPERT, out, given), elements=expert.size * len(made) * matrix)
        return OperatorCounts(
            name=name,
            kind="experts",
            inputs=(Port(tensor=taken, dims=(*CHOICES, given)),),
            outputs=made,
            weights=(weight,),
            splits=splits(token, expert, feature),
            forward_flops=2 * rows * len(made) * matrix,
            working=sum(tensor.elements for tensor in made),
            passes_partial=True,
        )

    gate, up, activated, silu = (_of_experts(name, WIDTH, narrow) for name in ("gate", "up", "activated", "silu"))
    results = _of_experts("results", HIDDEN, rows * shape.hidden)
    return (
        product("gate and up", "dispatched", gate, up, ends=(HIDDEN, WIDTH)),
        elementwise("activation", ("gate", "up"), activated, silu, over=(token, expert, feature), working=narrow),
        product("down", "activated", results, ends=(WIDTH, HIDDEN)),
    )


def _combine(shape: MixtralShape, *, token: Dim, expert: Dim) -> OperatorCounts:
    """The weighted sum of the results over the experts of every token."""
    return OperatorCounts(
        name="combine",
        kind="combine",
        inputs=(Port(tensor="results", dims=(*CHOICES, HIDDEN)),),
        outputs=(TensorCounts(name="inner", dims=STATE, elements=token.size * shape.hidden),),
        splits=splits(token, expert),
        passes_partial=True,
    )


def _of_experts(name: str, last: str, elements: int) -> TensorCounts:
    return TensorCounts(name=name, dims=(*CHOICES, last), elements=elements, saved=True)


MIXTRAL_8X7B = MixtralShape(blocks=32, hidden=4096, heads=32, key_heads=8, width=14336, vocabulary=32000)
ENTRIES = (
    ModelEntry(
        name="mixtral-8x7b",
        summary="decoder, 32 blocks, hidden 4096, 32 heads on 8 key heads, 8 SwiGLU experts of 14336, 2 per token",
        source="Jiang et al. 2024, table 1; count of the released weights",
        chain=partial(mixtral, MIXTRAL_8X7B),
        shape=MIXTRAL_8X7B,
        published_params=46.7e9,
        default_sequence=4096,
    ),
)
