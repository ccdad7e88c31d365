"""How the operators of transformer layers run on parts of their tensors.

Names and dimensions are those of `stagecut.models.families`. Layers are taken as they are built: a `ResidualPart` with
its `norm` and `inner` module, token embeddings and heads.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.planner.core.operators.operators import HIDDEN, TOKEN

if TYPE_CHECKING:
    from stagecut.models.modules.transformer import BlockShape

Inputs = tuple[Tensor, ...]
Operators = Mapping[str, OperatorModule]
HEAD, WIDTH, VOCABULARY = "head", "width", "vocabulary"


def product(linear: nn.Linear, given: Tensor, part: LoopPart) -> Tensor:
    """A product, to which one of the devices that share a sum adds the bias."""
    return functional.linear(given, linear.weight, linear.bias if part.adds_once else None)


def linear_operator(name: str, *, out: str, given: str, biased: bool) -> OperatorModule:
    """The product of a linear submodule."""
    return OperatorModule(
        run=partial(_run_linear, name), weights=linear_weights(name, out=out, given=given, biased=biased)
    )


def linear_weights(name: str, *, out: str, given: str, biased: bool) -> dict[str, tuple[str, ...]]:
    """Weights of a linear submodule, with the dimensions that it makes and takes."""
    bias = {f"{name}.bias": (out,)} if biased else {}
    return {f"{name}.weight": (out, given), **bias}


def norm_operator(name: str, *, biased: bool) -> OperatorModule:
    """A norm over the hidden width."""
    weights = {f"{name}.{own}": (HIDDEN,) for own in (("weight", "bias") if biased else ("weight",))}
    return OperatorModule(run=lambda layer, inputs, _: layer.get_submodule(name)(inputs[0]), weights=weights)


def residual_operators(shape: "BlockShape", inner: Operators) -> Operators:
    """Norm, inner operators, dropout and residual sum."""
    norm = norm_operator("norm", biased=shape.biased)
    residual = OperatorModule(run=_run_residual, weights={}, draws=shape.dropout > 0)
    return {"norm": norm, **inner, "residual": residual}


def attention_operators(*, biased: bool, draws: bool) -> Operators:
    """Queries, keys and values, attention, projection."""
    weights = [
        linear_weights(f"inner.{own}", out=HEAD, given=HIDDEN, biased=biased) for own in ("query", "key", "value")
    ]
    return {
        "qkv": OperatorModule(run=_run_qkv, weights={name: dims for own in weights for name, dims in own.items()}),
        "attention": OperatorModule(run=_run_attention, weights={}, draws=draws),
        "project": linear_operator("inner.project", out=HIDDEN, given=HEAD, biased=biased),
    }


def gelu_operators() -> Operators:
    """Two linear layers with GeLU in between."""
    return {
        "up": linear_operator("inner.up", out=WIDTH, given=HIDDEN, biased=True),
        "activation": OperatorModule(run=_run_gelu, weights={}),
        "down": linear_operator("inner.down", out=HIDDEN, given=WIDTH, biased=True),
    }


def swiglu_operators() -> Operators:
    """Gate and up, silu and product, down."""
    weights = [linear_weights(f"inner.{own}", out=WIDTH, given=HIDDEN, biased=False) for own in ("gate", "up")]
    return {
        "gate and up": OperatorModule(run=_run_gate_and_up, weights={**weights[0], **weights[1]}),
        "activation": OperatorModule(run=_run_swiglu, weights={}),
        "down": linear_operator("inner.down", out=HIDDEN, given=WIDTH, biased=False),
    }


def embedding_operators(*, positions: bool, draws: bool) -> Operators:
    """Rows of the token matrix, and learned positions if there are any."""
    tokens = OperatorModule(run=_run_tokens, weights={"tokens.weight": (VOCABULARY, HIDDEN)})
    if not positions:
        return {"tokens": tokens}
    added = OperatorModule(run=_run_positions, weights={"positions.weight": ("position", HIDDEN)}, draws=draws)
    return {"tokens": tokens, "positions": added}


def head_operators(*, normed: bool, norm_biased: bool, biased: bool = False) -> Operators:
    """Final norm if there is one, and logits."""
    norm = {"norm": norm_operator("norm", biased=norm_biased)} if normed else {}
    weights = linear_weights("project", out=VOCABULARY, given=HIDDEN, biased=biased)
    return {**norm, "project": OperatorModule(run=_run_logits, weights=weights)}


def run_first_token(_: nn.Module, inputs: Inputs, part: LoopPart) -> Tensor:
    """The first token of each sample, or a summand of it: zero on devices that have others.

    The zeros are in the graph, so that all devices have the same backward.
    """
    elsewhere = torch.tensor(part.start(TOKEN, 1) > 0, device=inputs[0].device)
    return inputs[0][:, 0].masked_fill(elsewhere, 0.0)


def _run_linear(name: str, layer: nn.Module, inputs: Inputs, part: LoopPart) -> Tensor:
    linear: Any = layer.get_submodule(name)
    return product(linear, inputs[0], part)


def _run_residual(layer: Any, inputs: Inputs, _: LoopPart) -> Tensor:
    return inputs[0] + layer.dropout(inputs[1])


def _run_qkv(layer: Any, inputs: Inputs, part: LoopPart) -> Inputs:
    attention = layer.inner
    query, key, value = (
        product(linear, inputs[0], part) for linear in (attention.query, attention.key, attention.value)
    )
    return (*attention.turned(query, key, first=part.start(TOKEN, query.shape[1])), value)


def _run_attention(layer: Any, inputs: Inputs, part: LoopPart) -> Tensor:
    mixed: Tensor = layer.inner.mix(*inputs, first=part.start(TOKEN, inputs[0].shape[1]))
    return mixed


def _run_gelu(layer: Any, inputs: Inputs, _: LoopPart) -> Tensor:
    return functional.gelu(inputs[0], approximate=layer.inner.gelu)


def _run_gate_and_up(layer: Any, inputs: Inputs, part: LoopPart) -> Inputs:
    return product(layer.inner.gate, inputs[0], part), product(layer.inner.up, inputs[0], part)


def _run_swiglu(_: Any, inputs: Inputs, __: LoopPart) -> Tensor:
    return functional.silu(inputs[0]) * inputs[1]


def _run_tokens(layer: Any, inputs: Inputs, part: LoopPart) -> Tensor:
    matrix, parts = layer.tokens.weight, part.parts(VOCABULARY)
    if parts == 1:
        return functional.embedding(inputs[0], matrix)
    rows = inputs[0] - part.start(VOCABULARY, -(-layer.tokens.num_embeddings // parts))
    own = (rows >= 0) & (rows < len(matrix))
    return functional.embedding(rows * own, matrix) * own.unsqueeze(-1)


def _run_positions(layer: Any, inputs: Inputs, part: LoopPart) -> Tensor:
    tokens = inputs[0].shape[1]
    first = part.start(TOKEN, tokens)
    summed: Tensor = layer.dropout(inputs[0] + layer.positions.weight[first : first + tokens])
    return summed


def _run_logits(layer: Any, inputs: Inputs, part: LoopPart) -> Tensor:
    """Logits; where the vocabulary cannot be divided evenly, the last device's are filled up with impossible ones."""
    logits = product(layer.project, inputs[0], part)
    missing = -(-layer.project.out_features // part.parts(VOCABULARY)) - logits.shape[-1]
    return functional.pad(logits, (0, missing), value=-float("inf")) if missing else logits
