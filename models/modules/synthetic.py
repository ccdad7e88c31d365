"""Random models in torch.

A layer multiplies by a matrix with as many elements as the profile has parameters, square except for the rest,
over as many rows as the profile has it save. Parameters and outputs are met exactly, saved bytes to within one row;
FLOPs are what that product takes, which is not what was drawn.
"""

from functools import partial
from math import isqrt

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from stagecut.models.families.chain import LayerCounts
from stagecut.models.families.synthetic import SyntheticShape, synthetic
from stagecut.models.modules.module_chain import LayerModule, ModuleChain

INPUT_WIDTH = 1000
"""Inputs per sample of the first layer, which the profile does not define."""


class SyntheticLayer(nn.Module):
    """A linear layer whose input and output are repeated or truncated to the sizes wanted."""

    def __init__(self, *, params: int, rows: int, outputs: int) -> None:
        super().__init__()
        width = isqrt(params)
        self.weight = nn.Parameter(torch.empty(params // width, width).normal_(std=width**-0.5))
        self.bias = nn.Parameter(torch.zeros(params % width))
        self.rows, self.outputs = rows, outputs

    def forward(self, numbers: Tensor) -> Tensor:
        """From (samples, inputs) to (samples, outputs)."""
        height, width = self.weight.shape
        rows = fitted(functional.gelu(numbers), self.rows * width).view(-1, self.rows, width)
        bias = functional.pad(self.bias, (0, height - len(self.bias)))
        return fitted(functional.linear(rows, self.weight, bias).flatten(1), self.outputs)


def fitted(numbers: Tensor, count: int) -> Tensor:
    """Each sample repeated or truncated to the size wanted, as a copy."""
    times = -(-count // numbers.shape[1])
    return numbers.repeat(1, times)[:, :count].clone(memory_format=torch.contiguous_format)


def synthetic_modules(name: str, shape: SyntheticShape) -> ModuleChain:
    """The layers of a random model."""
    layers = synthetic(shape).layers
    given = (0, *(layer.output for layer in layers[:-1]))
    return ModuleChain(
        name=name,
        layers=tuple(_layer(layer, numbers) for layer, numbers in zip(layers, given, strict=True)),
        loss=functional.mse_loss,
        batch=partial(_batch, outputs=layers[-1].output),
    )


def _layer(layer: LayerCounts, given: int) -> LayerModule:
    rows = max(1, round((layer.saved - given) / isqrt(layer.params)))
    build = partial(SyntheticLayer, params=layer.params, rows=rows, outputs=layer.output)
    return LayerModule(name=layer.name, build=build)


def _batch(num_samples: int, generator: Generator, *, outputs: int) -> tuple[Tensor, Tensor]:
    draw = partial(torch.randn, generator=generator, device=generator.device)
    return draw(num_samples, INPUT_WIDTH), draw(num_samples, outputs)
