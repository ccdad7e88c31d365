"""Torch layers for examples/tiny, named as its profile names them, and faulty ones."""

import os
import signal

import torch
from torch import nn
from torch.nn import functional

from stagecut.models.modules.module_chain import LayerModule, ModuleChain

NAMES = ("embedding", "attention-1", "feed-forward-1", "attention-2", "feed-forward-2", "head")
WIDTH = 8


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, state):
        return state + torch.tanh(self.inner(state))


class Raising(Residual):
    def forward(self, state):
        if self.training:
            raise ValueError("no such head")
        return state


class NotANumber(Residual):
    def forward(self, state):
        return super().forward(state) * float("nan")


class Hungry(Residual):
    def forward(self, state):
        return torch.empty(2**60) if self.training else state


class Random(Residual):
    """Other numbers than a single process would have: no check passes."""

    def forward(self, state):
        return super().forward(state) + torch.rand(())


def chain(last=Residual, names=NAMES):
    """A chain whose last layer is of another kind."""
    builders = [*[Residual] * (len(names) - 1), last]
    return ModuleChain(
        name="tiny-6",
        layers=tuple(LayerModule(name=name, build=build) for name, build in zip(names, builders, strict=True)),
        loss=functional.mse_loss,
        batch=_batch,
    )


def _batch(samples, generator):
    inputs = torch.randn(samples, WIDTH, generator=generator)
    return inputs, inputs.flip(1)


def raising():
    return chain(Raising)


class StoppedLater(Residual):
    """Stops the process of rank 2 in the forward of its sixth minibatch."""

    num_forwards = 0

    def forward(self, state):
        self.num_forwards += self.training
        if self.num_forwards == 6 and os.environ["RANK"] == "2":
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().forward(state)


def stopped_later():
    return chain(StoppedLater)


def not_a_number():
    return chain(NotANumber)


def hungry():
    return chain(Hungry)


def normalised():
    return chain(lambda: nn.BatchNorm1d(WIDTH))


def random():
    return chain(Random)


def renamed():
    return chain(names=("embeddings", *NAMES[1:]))
