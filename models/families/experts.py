"""Experts.

A router sends each of `s` tokens to `t` of `E` gated experts of width `f`; every token also goes through the shared
expert, if there is one, of width `g`.

- parameters: `E 3 h f + E h`, shared expert `3 h g`, its gate `h` (Qwen2)
- forward FLOPs: `t 6 s h f + 2 s h E`, shared `6 s h g`
- saved: router probabilities, `s E`; per chosen expert the gathered tokens and their outputs, `2 s h`, and the four
  tensors of its gated layer, `4 s f`; of the shared one `4 s g`, with a gate its output, `s h`
"""

from dataclasses import dataclass, replace

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
from stagecut.models.families.transformer import WIDTH, FeedForward, Residual
from stagecut.planner.core.operators.operators import DISPATCH, HIDDEN, SAMPLE, SUM, TOKEN, Port

EXPERT = "expert"
CHOICES = (SAMPLE, TOKEN, EXPERT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experts:
    """Router and experts of one block."""

    width: int
    """Of one expert."""
    experts: int
    experts_per_token: int
    shared_width: int = 0
    """Of what every token goes through; 0: nothing."""
    shared_gate: bool = False
    """Whether the shared expert's output is multiplied by a gate of the token (Qwen2)."""

    def operators(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        """From the normed tensor to "inner"."""
        token, expert = residual.token, Dim(name=EXPERT, size=self.experts)
        shape = Sizes(hidden=residual.hidden, experts=self)
        routed = (
            _router(shape, taken, token=token),
            _dispatch(shape, taken, token=token, expert=expert),
            *_gated_experts(shape, token=token, expert=expert),
            _combine(shape, token=token, expert=expert, made="routed" if self.shared_width else "inner"),
        )
        return (*routed, *self._shared(residual, taken)) if self.shared_width else routed

    def _shared(self, residual: Residual, taken: str) -> tuple[OperatorCounts, ...]:
        """The shared expert, and the sum of what it and the others make."""
        dense = FeedForward(width=self.shared_width, gated=True).operators(residual, taken)
        *before, down = (_prefixed(operator, taken) for operator in dense)
        made = TensorCounts(name="inner", dims=STATE, elements=residual.tokens * residual.hidden)
        add = elementwise(
            "sum of experts", ("routed", "shared"), made, over=(residual.token,), whole=(HIDDEN,), kind=SUM
        )
        add = replace(add, passes_partial=True)
        if not self.shared_gate:
            (result,) = down.outputs
            return (*before, replace(down, outputs=(replace(result, name="shared"),)), add)
        (result,) = down.outputs
        return (*before, replace(down, outputs=(replace(result, saved=True),)), _shared_gate(residual, taken), add)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Experts on a hidden width."""

    hidden: int
    experts: Experts


def _prefixed(operator: OperatorCounts, taken: str) -> OperatorCounts:
    """An operator of the shared expert, apart from those of the others by its names."""
    inputs = (
        port if port.tensor == taken else replace(port, tensor=f"shared {port.tensor}") for port in operator.inputs
    )
    outputs = (replace(tensor, name=f"shared {tensor.name}") for tensor in operator.outputs)
    return replace(operator, name=f"shared {operator.name}", inputs=tuple(inputs), outputs=tuple(outputs))


def _shared_gate(residual: Residual, taken: str) -> OperatorCounts:
    """The shared expert's output times one number per token, a product that is too small to count."""
    return elementwise(
        "shared gate",
        ("shared inner", taken),
        TensorCounts(name="shared", dims=STATE, elements=residual.tokens * residual.hidden),
        over=(residual.token,),
        whole=(HIDDEN,),
        weights=(WeightCounts(name="weight", dims=(HIDDEN,), elements=residual.hidden),),
    )


def _router(shape: Sizes, taken: str, *, token: Dim) -> OperatorCounts:
    made = TensorCounts(name="probabilities", dims=CHOICES, elements=token.size * shape.experts.experts, saved=True)
    product = linear(
        "router",
        taken,
        made={},
        over=(token,),
        given=Dim(name=HIDDEN, size=shape.hidden),
        out=Dim(name=EXPERT, size=shape.experts.experts),
        biased=False,
        working=0,
    )
    return replace(product, outputs=(made,), splits=splits(token), passes_partial=False)


def _dispatch(shape: Sizes, taken: str, *, token: Dim, expert: Dim) -> OperatorCounts:
    """Hand every token to its experts; a part of the experts takes its own tokens out of all."""
    rows = token.size * shape.experts.experts_per_token
    return OperatorCounts(
        name="dispatch",
        kind=DISPATCH,
        inputs=(Port(tensor=taken, dims=STATE), Port(tensor="probabilities", dims=CHOICES)),
        outputs=(_of_experts("dispatched", HIDDEN, rows * shape.hidden),),
        splits=splits(token, expert),
    )


def _gated_experts(shape: Sizes, *, token: Dim, expert: Dim) -> tuple[OperatorCounts, ...]:
    feature, rows = Dim(name=WIDTH, size=shape.experts.width), token.size * shape.experts.experts_per_token
    narrow, matrix = rows * shape.experts.width, shape.experts.width * shape.hidden

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


def _combine(shape: Sizes, *, token: Dim, expert: Dim, made: str) -> OperatorCounts:
    """The weighted sum of the results over the experts of every token."""
    return OperatorCounts(
        name="combine",
        kind="combine",
        inputs=(Port(tensor="results", dims=(*CHOICES, HIDDEN)),),
        outputs=(TensorCounts(name=made, dims=STATE, elements=token.size * shape.hidden),),
        splits=splits(token, expert),
        passes_partial=True,
    )


def _of_experts(name: str, last: str, elements: int) -> TensorCounts:
    return TensorCounts(name=name, dims=(*CHOICES, last), elements=elements, saved=True)
