"""What is trained: small models and data sets that come with their libraries."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.report.pages import ROOT
from stagecut.executor.play.build import Layers
from stagecut.models.families.gpt import GptShape
from stagecut.models.modules.gpt import gpt_modules

NUM_LAYERS = 8
"""Of every model, and of the models whose times they have."""
TEXT = ROOT / "examples" / "train_gpt" / "text.txt"
WINDOW = 32
"""Tokens of a sample."""
HELD_OUT = 0.2
MINI = GptShape(blocks=3, hidden=64, heads=4, vocabulary=256, positions=WINDOW, dropout=0.0)
"""gpt-mini with half its blocks, a third of its width and a token for each byte."""
Samples = tuple[Tensor, Tensor]
"""Inputs and targets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A model and data to train it on and to judge it by."""

    layers: Layers
    loss: Callable[[Tensor, Tensor], Tensor]
    training: Samples
    held_out: Samples
    judge: Callable[[Tensor, Tensor], float]
    """The value of outputs for targets, of which there is a target."""


@cache
def digits() -> Task:
    """A convolutional network for the 1797 images of 8 x 8 pixels of scikit-learn; accuracy in percent."""
    return Task(
        layers=network_for_digits(),
        loss=functional.cross_entropy,
        training=_digits()[0],
        held_out=_digits()[1],
        judge=lambda output, targets: 100 * float((output.argmax(dim=1) == targets).float().mean()),
    )


@cache
def text() -> Task:
    """A GPT for the bytes of a text; loss in nats per byte."""
    tokens = torch.tensor(list(TEXT.read_bytes()))
    first = int(len(tokens) * (1 - HELD_OUT))
    chain = gpt_modules("gpt-mini", MINI, tokens=WINDOW, dropout=None)
    assert chain.loss is not None
    loss = chain.loss
    return Task(
        layers=chain,
        loss=loss,
        training=_windows(tokens[:first], step=1),
        held_out=_windows(tokens[first:], step=WINDOW // 2),
        judge=lambda output, targets: float(loss(output, targets)),
    )


@cache
def regression() -> Task:
    """Linear least squares: digits as ten indicators, from pixels and a constant; convex."""
    training, held_out = (
        (torch.cat((images.flatten(1), torch.ones(len(images), 1)), dim=1), functional.one_hot(labels, 10).float())
        for images, labels in _digits()
    )
    return Task(
        layers=[lambda: _zeros(nn.Linear(65, 10, bias=False))],
        loss=squared_error,
        training=training,
        held_out=held_out,
        judge=lambda output, targets: float(squared_error(output, targets)),
    )


def squared_error(output: Tensor, targets: Tensor) -> Tensor:
    """Half the squared distance, mean over samples."""
    return ((output - targets) ** 2).sum(dim=1).mean() / 2


class Residual(nn.Module):
    """A convolution whose input is added to its output."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.GroupNorm(1, channels), nn.Conv2d(channels, channels, 3, padding=1), nn.ReLU())

    def forward(self, images: Tensor) -> Tensor:
        """The same shape."""
        output: Tensor = images + self.inside(images)
        return output


def network_for_digits() -> list[Callable[[], nn.Module]]:
    """Six convolutions and two linear layers."""
    return [
        lambda: nn.Sequential(nn.Conv2d(1, 16, 3, stride=2, padding=1), nn.ReLU()),
        *[lambda: Residual(16)] * 2,
        lambda: nn.Sequential(nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU()),
        *[lambda: Residual(32)] * 2,
        lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(128), nn.Linear(128, 32), nn.ReLU()),
        lambda: nn.Linear(32, 10),
    ]


@cache
def _digits() -> tuple[Samples, Samples]:
    """Training and held-out images and labels, in a fixed random order."""
    from sklearn.datasets import load_digits

    found = load_digits()
    images = torch.tensor(found.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(found.target, dtype=torch.int64)
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0))
    first = int(len(labels) * (1 - HELD_OUT))
    train, rest = order[:first], order[first:]
    return (images[train], labels[train]), (images[rest], labels[rest])


def _windows(tokens: Tensor, *, step: int) -> Samples:
    """Every so many bytes a window, and the same one byte on."""
    windows = tokens.unfold(0, WINDOW + 1, step)
    return windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def _zeros(layer: nn.Linear) -> nn.Linear:
    nn.init.zeros_(layer.weight)
    return layer
