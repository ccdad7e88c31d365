"""Transformer parts.

With `s` tokens, hidden width `h`, `a` heads, key and value width `k` (`k = h` without grouped
queries), feed-forward width `f`:

**Attention part**: norm, queries, keys and values, attention, projection, residual sum.

- parameters: `2 h^2 + 2 h k`, with biases `+ 2 h + 2 k`; norm: `2 h` (LayerNorm) or `h` (RMSNorm)
- forward FLOPs: `2 s (2 h^2 + 2 h k) + 4 s^2 h`; a causal mask does not lower the count
  (as in Narayanan et al., SC 2021)
- saved: the part's input, the normed input, queries and attention output, `4 s h` elements; keys and
  values, `2 s k`; with dropout a mask of `s h` bytes; softmax statistics, `4 a s` bytes.
  Attention is **fused** (Dao et al., NeurIPS 2022): no `s x s` matrix is saved, which removes the
  term `5 a s^2` of Korthikanti et al., MLSys 2023 ("Reducing Activation Recomputation in Large
  Transformer Models")
- working: gradients of the output, the attention output, queries, keys, values: `s (3 h + 2 k)`

**Feed-forward part**: norm, two linear layers with GeLU in between, residual sum.

- parameters: `2 h f + f + h`, norm `2 h`
- forward FLOPs: `4 s h f`
- saved: the part's input and the normed input, `2 s h`; the input and the output of GeLU, `2 s f`;
  with dropout a mask of `s h` bytes
- working: gradients of the output and of both sides of GeLU: `s (h + 2 f)`

In fp16 with dropout and `f = 4 h` the two parts save `34 s h` bytes, which is what Korthikanti et al. count
without their `5 a s^2`. Pre-norm (GPT-2) and post-norm (BERT) save the same.

**Tensor parallelism**: `n` devices shard a part by heads, by columns and rows of the two linear layers, or by tokens
of the vocabulary (Shoeybi et al., arXiv 1909.08053). Attention and feed-forward part then all-reduce their output,
`s h` elements, in the forward, and as much for the gradient of their input in the backward. With sequence parallelism
(Korthikanti et al., MLSys 2023) norms, dropout and residual sums are sharded along the tokens, so that each device
holds `1 / n` of everything saved; the all-reduce becomes a reduce-scatter after the part and an all-gather before it,
of the same volume. Embedding and head need one of the two in each direction, which is half an all-reduce: `s h / 2`
elements. Heads, widths and vocabulary are assumed to divide evenly. Not counted: the sums over the vocabulary in the
loss, `O(s)` elements, and gathering a backward's input once more, which overlaps with computation.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from stagecut.models.families.chain import FP32_BYTES, MASK_BYTES, LayerCounts, layer_of
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
from stagecut.planner.core.operators import HIDDEN, INPUT, OUTPUT, SAMPLE, SUM, TOKEN, Port

HEAD, KEY_TOKEN, WIDTH = "head", "key token", "width"


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What attention parts and feed-forward parts of a model have in common."""

    tokens: int
    hidden: int
    biased: bool = True
    """Whether there are biases and LayerNorm; otherwise no biases and RMSNorm."""
    dropout: bool = True
    norm_first: bool = True
    """Whether the norm comes before the part (GPT-2), otherwise after the sum (BERT)."""

    @property
    def token(self) -> Dim:
        """The tokens."""
        return Dim(name=TOKEN, size=self.tokens)

    @property
    def wide(self) -> Dim:
        """The hidden width."""
        return Dim(name=HIDDEN, size=self.hidden)

    def part(self, name: str, inner: Callable[[str], tuple[OperatorCounts, ...]]) -> LayerCounts:
        """Norm, inner operators on the tensor of that name, dropout and residual sum, in this order or norm last."""
        elements = self.tokens * self.hidden
        if self.norm_first:
            operators = (self._norm(INPUT, "normed"), *inner("normed"), self._sum(OUTPUT))
        else:
            operators = (*inner(INPUT), self._sum("summed"), self._norm("summed", OUTPUT))
        return layer_of(name, operators, kind=name, saved_input=elements, all_reduced=elements)

    def _norm(self, taken: str, made: str) -> OperatorCounts:
        return norm(taken, self._state(made), wide=self.wide, over=(self.token,), biased=self.biased)

    def _sum(self, made: str) -> OperatorCounts:
        dropped = (mask(self.token, self.wide),) if self.dropout else ()
        return elementwise(
            "residual",
            (INPUT, "inner"),
            self._state(made),
            *dropped,
            over=(self.token,),
            whole=(HIDDEN,),
            kind=SUM,
            working=self.tokens * self.hidden,
        )

    def _state(self, name: str) -> TensorCounts:
        return TensorCounts(name=name, dims=STATE, elements=self.tokens * self.hidden, saved=name != OUTPUT)


def norm(
    taken: str, *made: TensorCounts, wide: Dim, over: tuple[Dim, ...] = (), biased: bool = True, working: int = 0
) -> OperatorCounts:
    """LayerNorm if `biased`, otherwise RMSNorm."""
    names = ("weight", "bias") if biased else ("weight",)
    weights = tuple(WeightCounts(name=name, dims=(HIDDEN,), elements=wide.size) for name in names)
    return elementwise(
        "norm", (taken,), *made, kind="norm", over=over, whole=(HIDDEN,), weights=weights, working=working
    )


def first_token(residual: Residual, *, working: int = 0) -> OperatorCounts:
    """The first token out of the layer's input: the sum over the tokens, of which the others count nothing."""
    return OperatorCounts(
        name="first token",
        kind=SUM,
        inputs=(Port(tensor=INPUT, dims=STATE),),
        outputs=(TensorCounts(name="first token", dims=(SAMPLE, HIDDEN), elements=residual.hidden),),
        splits=splits(residual.token, residual.wide),
        working=working,
        passes_partial=True,
    )


def mask(*dims: Dim) -> TensorCounts:
    """A dropout mask."""
    return TensorCounts(
        name="mask",
        dims=(SAMPLE, *(dim.name for dim in dims)),
        fixed_bytes=MASK_BYTES * math.prod(dim.size for dim in dims),
        saved=True,
    )


def attention_part(residual: Residual, *, heads: int, key_heads: int | None = None) -> LayerCounts:
    """Attention part, divided by key heads with their queries."""
    tokens, hidden = residual.tokens, residual.hidden
    keys = hidden // heads * (key_heads or heads)
    token, wide = residual.token, residual.wide
    head = Dim(name=HEAD, size=hidden, units=key_heads or heads)

    def inner(taken: str) -> tuple[OperatorCounts, ...]:
        made = {"queries": hidden, "keys": keys, "values": keys}
        out = replace(head, size=hidden + 2 * keys)
        return (
            linear("qkv", taken, made=made, over=(token,), given=wide, out=out, biased=residual.biased, saved=True),
            _attention_core(tokens=tokens, hidden=hidden, heads=heads, split=(token, head)),
            linear(
                "project",
                "mixed",
                made={"inner": hidden},
                over=(token,),
                given=head,
                out=wide,
                biased=residual.biased,
                working=0,
            ),
        )

    return residual.part("attention", inner)


def _attention_core(*, tokens: int, hidden: int, heads: int, split: tuple[Dim, ...]) -> OperatorCounts:
    """Attention of the tokens to all tokens; a part of the tokens needs all keys and values."""
    queries, keys = (SAMPLE, TOKEN, HEAD), (SAMPLE, KEY_TOKEN, HEAD)
    return OperatorCounts(
        name="attention",
        kind="attention",
        inputs=(
            Port(tensor="queries", dims=queries),
            Port(tensor="keys", dims=keys),
            Port(tensor="values", dims=keys),
        ),
        outputs=(
            TensorCounts(name="mixed", dims=queries, elements=tokens * hidden, saved=True),
            TensorCounts(name="statistics", dims=queries, fixed_bytes=FP32_BYTES * heads * tokens, saved=True),
        ),
        splits=splits(*split),
        forward_flops=4 * tokens * tokens * hidden,
        working=tokens * hidden,
    )


def feed_forward_part(residual: Residual, *, width: int) -> LayerCounts:
    """Feed-forward part with GeLU."""
    token, wide, feature = residual.token, residual.wide, Dim(name=WIDTH, size=width)

    def inner(taken: str) -> tuple[OperatorCounts, ...]:
        return (
            linear("up", taken, made={"raised": width}, over=(token,), given=wide, out=feature, saved=True),
            activation(("raised",), "activated", over=(token, feature)),
            linear(
                "down", "activated", made={"inner": residual.hidden}, over=(token,), given=feature, out=wide, working=0
            ),
        )

    return residual.part("feed-forward", inner)


def activation(taken: tuple[str, ...], *made: str, over: tuple[Dim, ...], working: int | None = None) -> OperatorCounts:
    """An activation function, all tensors of which are saved."""
    dims, elements = (SAMPLE, *(dim.name for dim in over)), math.prod(dim.size for dim in over)
    tensors = (TensorCounts(name=name, dims=dims, elements=elements, saved=True) for name in made)
    return elementwise("activation", taken, *tensors, over=over, working=elements if working is None else working)


def dense_blocks(blocks: int, residual: Residual, *, heads: int, width: int) -> tuple[LayerCounts, ...]:
    """Attention part and feed-forward part of each block."""
    return repeated(blocks, attention_part(residual, heads=heads), feed_forward_part(residual, width=width))


def repeated(blocks: int, *parts: LayerCounts) -> tuple[LayerCounts, ...]:
    """The parts of every block, named like `block3.attention`."""
    return tuple(replace(part, name=f"block{block}.{part.name}") for block in range(blocks) for part in parts)
