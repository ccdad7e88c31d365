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

from dataclasses import dataclass
from functools import partial

from stagecut.models.families.chain import Chain, LayerCounts
from stagecut.models.families.entry import ModelEntry
from stagecut.models.families.experts import Experts
from stagecut.models.families.llama import LlamaShape, decoder_chain, decoder_residual

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
    experts = Experts(width=shape.width, experts=shape.experts, experts_per_token=shape.experts_per_token)
    residual = decoder_residual(shape, tokens)
    return residual.part("experts", partial(experts.operators, residual))


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
