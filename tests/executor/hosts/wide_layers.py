"""Torch layers for examples/tiny whose messages are longer than what a slow cable takes at once."""

from functools import partial

import torch
from torch import nn
from torch.nn import functional

from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from tests.executor.tiny_layers import NAMES

WIDTH = 512


def chain():
    return ModuleChain(
        name="tiny-6",
        layers=tuple(LayerModule(name=name, build=partial(nn.Linear, WIDTH, WIDTH)) for name in NAMES),
        loss=functional.mse_loss,
        batch=_batch,
    )


def _batch(samples, generator):
    inputs = torch.randn(samples, WIDTH, generator=generator)
    return inputs, inputs.flip(1)
