"""Mixtral decoders in torch."""

from functools import partial

import torch
from torch import Tensor, nn

from stagecut.models.families.mixtral import MixtralShape
from stagecut.models.modules.llama import SwiGlu, decoder_block, decoder_modules
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.sharing import experts_styles
from stagecut.models.modules.transformer import BlockShape, ResidualPart, init_part

ROTARY_BASE = 1_000_000.0
"""From the released configuration."""


class Experts(nn.Module):
    """A router and its experts, one after another."""

    def __init__(self, shape: MixtralShape) -> None:
        super().__init__()
        self.router = nn.Linear(shape.hidden, shape.experts, bias=False)
        self.experts = nn.ModuleList(SwiGlu(hidden=shape.hidden, width=shape.width) for _ in range(shape.experts))
        self.per_token = shape.experts_per_token

    def forward(self, hidden: Tensor) -> Tensor:
        """Apply the experts with the largest logits, weighted by the softmax of those (Jiang et al. 2024, section 2.1).

        Every expert is called, without tokens too: its weights then have gradients of zero on every replica.
        """
        tokens = hidden.flatten(0, -2)
        logits, chosen = self.router(tokens).topk(self.per_token, dim=-1)
        weights = logits.softmax(dim=-1)
        mixed = torch.zeros_like(tokens)
        for index, expert in enumerate(self.experts):
            rows, rank = (chosen == index).nonzero(as_tuple=True)
            result = expert(tokens[rows]) * weights[rows, rank].unsqueeze(-1)
            mixed = mixed.index_add(0, rows, result.to(mixed.dtype))
        return mixed.view_as(hidden)


def mixtral_modules(name: str, shape: MixtralShape, *, tokens: int) -> ModuleChain:
    """The layers of a Mixtral."""
    block = decoder_block(shape, rotary_base=ROTARY_BASE)
    experts = LayerModule(
        name="experts",
        build=partial(_experts, shape, block),
        tensor_parallel=partial(experts_styles, shape.experts),
        divisible=shape.width,
    )
    return decoder_modules(name, shape, block, feed_forward=experts, tokens=tokens)


def _experts(shape: MixtralShape, block: BlockShape) -> nn.Module:
    inner = Experts(shape)
    last = (expert.down for expert in inner.experts if isinstance(expert, SwiGlu))
    return init_part(ResidualPart(block, inner), block, *last)
