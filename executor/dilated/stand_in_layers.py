"""Trivial layers in place of a model's, for runs that take planned times anyway."""

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.planner.core.model import ModelProfile

WIDTH = 8
"""Elements per sample, in and out of every layer."""
DEVIATION = 0.1
"""Standard deviation of the weights, around one: the state hardly grows or shrinks over a hundred layers."""


class StandIn(nn.Module):
    """state * weight + bias, elementwise: swapping any two of these layers changes the result."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH).normal_(mean=1.0, std=DEVIATION))
        self.bias = nn.Parameter(torch.empty(WIDTH).normal_(std=DEVIATION))

    def forward(self, state: Tensor) -> Tensor:
        """From (samples, WIDTH) to (samples, WIDTH)."""
        return torch.addcmul(self.bias, state, self.weight)


def stand_ins(profile: ModelProfile) -> ModuleChain:
    """A chain with the names and order of a model's layers, without its ties and skip edges."""
    return ModuleChain(
        name=profile.name,
        layers=tuple(LayerModule(name=layer.name, build=StandIn) for layer in profile.layers),
        loss=functional.mse_loss,
        stands_in=True,
        batch=_batch,
    )


def _batch(num_samples: int, generator: Generator) -> tuple[Tensor, Tensor]:
    inputs = torch.randn(num_samples, WIDTH, generator=generator, device=generator.device)
    return inputs, inputs.flip(1)
