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
from functools import partial

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
from stagecut.planner.core.operators.operators import HIDDEN, INPUT, OUTPUT, SAMPLE, SUM, TOKEN, Port

HEAD, KEY_TOKEN, WIDTH = "head", "key token", "width"
Inner = Callable[[str], tuple[OperatorCounts, ...]]
"""Operators from the tensor of a name to the one called "inner"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What attention parts and feed-forward parts of a model have in common."""

    tokens: int
    hidden: int
    biased: bool = True
    """Whether norms are LayerNorms, which have a bias; otherwise RMSNorms."""
    dropout: bool = True
    norm_first: bool = True
    """Whether the norm comes before the part (GPT-2), otherwise after the sum (BERT)."""
    norm_last: bool = False
    """Whether there is a second norm between the part and the sum (Gemma 2)."""

    @property
    def token(self) -> Dim:
        """The tokens."""
        return Dim(name=TOKEN, size=self.tokens)

    @property
    def wide(self) -> Dim:
        """The hidden width."""
        return Dim(name=HIDDEN, size=self.hidden)

    def part(self, name: str, inner: Inner) -> LayerCounts:
        """Norm, inner operators on the tensor of that name, dropout and residual sum, in this order or norm last."""
        if self.norm_last:
            settled = replace(self._norm("inner", "settled", saved=False), name="second norm")
            operators = (self._norm(INPUT, "normed"), *_kept(inner("normed"), "inner"), settled)
            return self._layer(name, (*operators, self.sum(OUTPUT, "settled")), times=1)
        if self.norm_first:
            operators = (self._norm(INPUT, "normed"), *inner("normed"), self.sum(OUTPUT, "inner"))
        else:
            operators = (*inner(INPUT), self.sum("summed", "inner"), self._norm("summed", OUTPUT))
        return self._layer(name, operators, times=1)

    def parallel_part(self, attention: Inner, feed_forward: Inner, *, norms: int) -> LayerCounts:
        """A block whose attention and feed-forward operators take the same input, through one norm or one each."""
        first, second = ("normed", "normed") if norms == 1 else ("normed", "normed too")
        other = () if norms == 1 else (replace(self._norm(INPUT, second), name="second norm"),)
        attended = _renamed(attention(first), "inner", "attended")
        operators = (self._norm(INPUT, first), *other, *attended, *feed_forward(second))
        return self._layer("block", (*operators, self.sum(OUTPUT, "attended", "inner")), times=2)

    def _layer(self, name: str, operators: tuple[OperatorCounts, ...], *, times: int) -> LayerCounts:
        elements = self.tokens * self.hidden
        return layer_of(name, operators, kind=name, saved_input=elements, all_reduced=times * elements)

    def _norm(self, taken: str, made: str, *, saved: bool = True) -> OperatorCounts:
        state = replace(self._state(made), saved=saved and made != OUTPUT)
        return norm(taken, state, wide=self.wide, over=(self.token,), biased=self.biased)

    def sum(self, made: str, *taken: str) -> OperatorCounts:
        """The input of the layer and these tensors, after dropout, added."""
        dropped = (mask(self.token, self.wide),) if self.dropout else ()
        return elementwise(
            "residual",
            (INPUT, *taken),
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Attention:
    """Widths of the attention of one block."""

    heads: int
    key_heads: int
    head_width: int
    biased: bool = False
    """Whether queries, keys and values have biases."""
    biased_output: bool = False
    normed_heads: bool = False
    """Whether every query and key is normed (Qwen3)."""
    norm_biased: bool = False
    """Whether these norms are LayerNorms."""
    window: int | None = None
    """Keys that a token attends to; None: all."""

    def operators(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        """From the normed tensor to "inner", divided by key heads with their queries."""
        queries, keys = self.heads * self.head_width, self.key_heads * self.head_width
        token, wide = residual.token, residual.wide
        head = Dim(name=HEAD, size=queries, units=self.key_heads)
        raw = " before norm" if self.normed_heads else ""
        made = {f"queries{raw}": queries, f"keys{raw}": keys, "values": keys}
        out = replace(head, size=queries + 2 * keys)
        return (
            linear("qkv", taken, made=made, over=(token,), given=wide, out=out, biased=self.biased, saved=True),
            *(self._head_norm(name, token) for name in ("queries", "keys") if self.normed_heads),
            attention_core(
                (token, head),
                heads=self.heads,
                key_width=self.head_width,
                value_width=self.head_width,
                window=self.window,
            ),
            projection(residual, head, biased=self.biased_output),
        )

    def _head_norm(self, name: str, token: Dim) -> OperatorCounts:
        heads = self.heads if name == "queries" else self.key_heads
        head = Dim(name=HEAD, size=heads * self.head_width, units=self.key_heads)
        elements, kinds = token.size * head.size, ("weight", "bias") if self.norm_biased else ("weight",)
        return elementwise(
            f"norm of {name}",
            (f"{name} before norm",),
            TensorCounts(name=name, dims=(SAMPLE, TOKEN, HEAD), elements=elements, saved=True),
            kind="norm",
            over=(token, head),
            weights=tuple(WeightCounts(name=kind, dims=("channel",), elements=self.head_width) for kind in kinds),
            working=elements,
        )


def attention_part(residual: Residual, *, heads: int, key_heads: int | None = None) -> LayerCounts:
    """Attention part whose heads divide the hidden width, with biases where the norms have them."""
    attention = Attention(
        heads=heads,
        key_heads=key_heads or heads,
        head_width=residual.hidden // heads,
        biased=residual.biased,
        biased_output=residual.biased,
    )
    return residual.part("attention", partial(attention.operators, residual))


def projection(residual: Residual, head: Dim, *, biased: bool) -> OperatorCounts:
    """From what the heads make to "inner"."""
    return linear(
        "project",
        "mixed",
        made={"inner": residual.hidden},
        over=(residual.token,),
        given=head,
        out=residual.wide,
        biased=biased,
        working=0,
    )


def attention_core(
    split: tuple[Dim, Dim], *, heads: int, key_width: int, value_width: int, window: int | None = None
) -> OperatorCounts:
    """Attention of the tokens to all tokens, or to a window; a part of the tokens needs all keys and values."""
    queries, keys = (SAMPLE, TOKEN, HEAD), (SAMPLE, KEY_TOKEN, HEAD)
    tokens = split[0].size
    return OperatorCounts(
        name="attention",
        kind="attention",
        inputs=(
            Port(tensor="queries", dims=queries),
            Port(tensor="keys", dims=keys),
            Port(tensor="values", dims=keys),
        ),
        outputs=(
            TensorCounts(name="mixed", dims=queries, elements=tokens * heads * value_width, saved=True),
            TensorCounts(name="statistics", dims=queries, fixed_bytes=FP32_BYTES * heads * tokens, saved=True),
        ),
        splits=splits(*split),
        forward_flops=2 * tokens * min(tokens, window or tokens) * heads * (key_width + value_width),
        working=tokens * heads * value_width,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedForward:
    """Width of the feed-forward part of one block."""

    width: int
    gated: bool = False
    """Whether there is a gate (SwiGLU, GeGLU), otherwise two linear layers with GeLU."""
    biased: bool = False

    def operators(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        """From the normed tensor to "inner"."""
        token, width, feature = residual.token, self.width, Dim(name=WIDTH, size=self.width)
        made = {"gate": width, "up": width} if self.gated else {"raised": width}
        out = Dim(name=WIDTH, size=len(made) * width, units=width)
        results = ("activated", "silu") if self.gated else ("activated",)
        first = "gate and up" if self.gated else "up"
        return (
            linear(
                first, taken, made=made, over=(token,), given=residual.wide, out=out, biased=self.biased, saved=True
            ),
            activation(tuple(made), *results, over=(token, feature)),
            linear(
                "down",
                "activated",
                made={"inner": residual.hidden},
                over=(token,),
                given=feature,
                out=residual.wide,
                biased=self.biased,
                working=0,
            ),
        )


def feed_forward_part(residual: Residual, *, width: int) -> LayerCounts:
    """Feed-forward part with GeLU and biases."""
    return residual.part("feed-forward", partial(FeedForward(width=width, biased=True).operators, residual))


def _kept(operators: tuple[OperatorCounts, ...], name: str) -> tuple[OperatorCounts, ...]:
    """The same with the tensor of that name saved, because a norm takes it."""
    *before, last = operators
    made = tuple(replace(tensor, saved=tensor.saved or tensor.name == name) for tensor in last.outputs)
    return (*before, replace(last, outputs=made))


def _renamed(operators: tuple[OperatorCounts, ...], old: str, new: str) -> tuple[OperatorCounts, ...]:
    """The same with another name for what the last one makes."""
    *before, last = operators
    made = tuple(replace(tensor, name=new if tensor.name == old else tensor.name) for tensor in last.outputs)
    return (*before, replace(last, outputs=made))


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
    return tuple(part for block in range(blocks) for part in repeated_as(block, *parts))


def repeated_as(block: int, *parts: LayerCounts) -> tuple[LayerCounts, ...]:
    """The parts of one block; a block of one part is named like `block3`."""
    if len(parts) == 1:
        return (replace(parts[0], name=f"block{block}"),)
    return tuple(replace(part, name=f"block{block}.{part.name}") for part in parts)
