"""Mixtral decoders in torch."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.experts import EXPERT
from stagecut.models.families.mixtral import MixtralShape
from stagecut.models.modules.expert_products import expert_products
from stagecut.models.modules.llama import decoder_block, decoder_modules
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.models.modules.sharing import experts_styles
from stagecut.models.modules.transformer import BlockShape, ResidualPart, init_part, last_deviation
from stagecut.models.modules.transformer_operators import Inputs, residual_operators
from stagecut.models.modules.weights import TRANSFORMER_DEVIATION
from stagecut.planner.core.operators.operators import HIDDEN, SAMPLE, TOKEN, Port

ROTARY_BASE = 1_000_000.0
"""From the released configuration."""


class ExpertMatrices(nn.Module):
    """The SwiGLUs of all experts, one matrix of every expert after another in each of three tensors."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__()
        wide = (shape.experts, shape.width, shape.hidden)
        self.gate = nn.Parameter(torch.empty(wide))
        self.up = nn.Parameter(torch.empty(wide))
        self.down = nn.Parameter(torch.empty(shape.experts, shape.hidden, shape.width))

    def forward(self, given: Sequence[Tensor]) -> list[Tensor]:
        """Each expert on its tokens, shape (tokens, width)."""
        return [self._expert(tokens, index) for index, tokens in enumerate(given)]

    def _expert(self, given: Tensor, index: int) -> Tensor:
        gate, up = (functional.linear(given, matrices[index]) for matrices in (self.gate, self.up))
        return functional.linear(functional.silu(gate) * up, self.down[index])


class Experts(nn.Module):
    """A router and its experts, one after another."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = ExpertMatrices(shape)
        self.per_token = shape.experts_per_token

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the experts with the largest logits, weighted by the softmax of those (Jiang et al. 2024, section 2.1).

        Every expert is called, without tokens too: its weights then have gradients of zero on every replica.
        """
        tokens = hidden.flatten(0, -2)
        logits, chosen = self.router(tokens).topk(self.per_token, dim=-1)
        weights = logits.softmax(dim=-1)
        mixed = torch.zeros_like(tokens)
        places = [(chosen == index).nonzero(as_tuple=True) for index in range(self.router.out_features)]
        results = self.experts([tokens[rows] for rows, _ in places])
        for (rows, rank), result in zip(places, results, strict=True):
            weighted = result * weights[rows, rank].unsqueeze(-1)
            mixed = mixed.index_add(0, rows, weighted.to(mixed.dtype))
        return mixed.view_as(hidden)


def mixtral_modules(name: str, shape: MixtralShape, *, tokens: int) -> ModuleChain:
    """The layers of a Mixtral."""
    block = decoder_block(shape, rotary_base=ROTARY_BASE)
    experts = LayerModule(
        name="experts",
        build=partial(_experts, shape, block),
        tensor_parallel=experts_styles,
        divisible=shape.width,
        operators=residual_operators(block, _EXPERTS),
    )
    return decoder_modules(name, shape, block, feed_forward=experts, tokens=tokens)


def _experts(shape: MixtralShape, block: BlockShape) -> nn.Module:
    inner = Experts(shape)
    part = init_part(ResidualPart(block, inner), block)
    for matrices in (inner.experts.gate, inner.experts.up):
        nn.init.normal_(matrices, std=TRANSFORMER_DEVIATION)
    nn.init.normal_(inner.experts.down, std=last_deviation(block))
    return part


def _run_router(layer: Any, inputs: Inputs, _: LoopPart) -> Tensor:
    """The weight of each expert for each token; zero for those that are not chosen."""
    logits, chosen = layer.inner.router(inputs[0]).topk(layer.inner.per_token, dim=-1)
    every = torch.zeros(*inputs[0].shape[:2], layer.inner.router.out_features, device=logits.device, dtype=logits.dtype)
    return every.scatter(-1, chosen, logits.softmax(dim=-1))


def _run_dispatch(layer: Any, inputs: Inputs, part: LoopPart) -> Inputs:
    """A row for each token and each of its experts, those of this part of the experts."""
    hidden, weights = inputs
    samples, tokens, experts = weights.shape
    sample, token, expert = weights.nonzero(as_tuple=True)
    sizes = (samples * part.parts(SAMPLE), tokens * part.parts(TOKEN), layer.inner.router.out_features)
    place = (sample + part.start(SAMPLE, samples)) * sizes[1] + token + part.start(TOKEN, tokens)
    keys = place * sizes[2] + expert + part.start(EXPERT, experts)
    return hidden[sample, token], keys, torch.tensor((*sizes, layer.inner.per_token))


def _of_experts(matrices: Tensor, given: Tensor, keys: Tensor, sizes: Tensor, part: LoopPart) -> Tensor:
    """Each row times the matrix of its expert."""
    return expert_products(matrices, given, keys % int(sizes[2]) - part.start(EXPERT, len(matrices)))


def _run_gate_and_up(layer: Any, inputs: Inputs, part: LoopPart) -> Inputs:
    own = layer.inner.experts
    given, keys, sizes = inputs
    return (
        _of_experts(own.gate, given, keys, sizes, part),
        _of_experts(own.up, given, keys, sizes, part),
        keys,
        sizes,
    )


def _run_activation(_: Any, inputs: Inputs, __: LoopPart) -> Inputs:
    gate, keys, sizes, up, *_same = inputs
    return functional.silu(gate) * up, keys, sizes


def _run_down(layer: Any, inputs: Inputs, part: LoopPart) -> Inputs:
    given, keys, sizes = inputs
    return _of_experts(layer.inner.experts.down, given, keys, sizes, part), keys, sizes


def _run_combine(_: Any, inputs: Inputs, part: LoopPart) -> Tensor:
    """The sum over the experts of this part, weighted."""
    results, keys, sizes, weights = inputs
    samples, tokens, experts = weights.shape
    expert = keys % int(sizes[2]) - part.start(EXPERT, experts)
    place = keys // int(sizes[2])
    sample = place // int(sizes[1]) - part.start(SAMPLE, samples)
    token = place % int(sizes[1]) - part.start(TOKEN, tokens)
    weighted = results * weights[sample, token, expert].unsqueeze(-1)
    mixed = results.new_zeros(samples * tokens, results.shape[1])
    return mixed.index_add(0, sample * tokens + token, weighted).view(samples, tokens, -1)


_EXPERTS = {
    "router": OperatorModule(run=_run_router, weights={"inner.router.weight": (EXPERT, HIDDEN)}),
    "dispatch": OperatorModule(run=_run_dispatch, weights={}, rows=True),
    "gate and up": OperatorModule(
        run=_run_gate_and_up,
        weights={f"inner.experts.{name}": (EXPERT, "width", HIDDEN) for name in ("gate", "up")},
        rows=True,
    ),
    "activation": OperatorModule(run=_run_activation, weights={}, rows=True),
    "down": OperatorModule(run=_run_down, weights={"inner.experts.down": (EXPERT, HIDDEN, "width")}, rows=True),
    "combine": OperatorModule(
        run=_run_combine, weights={}, also=(Port(tensor="probabilities", dims=(SAMPLE, TOKEN, EXPERT)),)
    ),
}
