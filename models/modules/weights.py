"""Initial weights."""

from typing import TypeVar

from torch import nn

Module = TypeVar("Module", bound=nn.Module)

TRANSFORMER_DEVIATION = 0.02
"""Standard deviation of a transformer's weights (Radford et al. 2019; Devlin et al. 2019; Touvron et al. 2023)."""


def init_normal(module: Module, *, deviation: float = TRANSFORMER_DEVIATION) -> Module:
    """Initialise linear layers and token matrices from a normal distribution, biases with zero; norms are unchanged."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv2d):
            nn.init.normal_(part.weight, std=deviation)
            if not isinstance(part, nn.Embedding) and part.bias is not None:
                nn.init.zeros_(part.bias)
    return module


def init_for_relu(module: Module) -> Module:
    """Initialise convolutions such that a ReLU after them preserves the variance (He et al. 2015), biases with zero."""
    for part in module.modules():
        if isinstance(part, nn.Conv2d | nn.ConvTranspose2d):
            nn.init.kaiming_normal_(part.weight, mode="fan_out", nonlinearity="relu")
            if part.bias is not None:
                nn.init.zeros_(part.bias)
    return module
