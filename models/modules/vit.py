"""Vision transformers in torch."""

from functools import partial

import torch
from torch import Tensor, nn

from stagecut.models.families.image_head import NUM_CLASSES
from stagecut.models.families.vit import IMAGE_CHANNELS, IMAGE_SIDE, VitShape
from stagecut.models.modules.batches import image_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.models.modules.transformer import BlockShape, dense_layers
from stagecut.models.modules.transformer_operators import linear_operator, norm_operator, run_first_token
from stagecut.models.modules.weights import TRANSFORMER_DEVIATION, init_normal
from stagecut.planner.core.operators.operators import HIDDEN, TOKEN

NORM_EPSILON = 1e-6
"""Dosovitskiy et al.'s released code."""


class PatchEmbedding(nn.Module):
    """A linear layer on every patch, preceded by the class token, and positions."""

    def __init__(self, shape: VitShape) -> None:
        super().__init__()
        self.patches = nn.Conv2d(IMAGE_CHANNELS, shape.hidden, shape.patch, stride=shape.patch)
        self.class_token = nn.Parameter(torch.zeros(shape.hidden))
        self.positions = nn.Parameter(torch.empty(shape.tokens, shape.hidden).normal_(std=TRANSFORMER_DEVIATION))

    def forward(self, images: Tensor) -> Tensor:
        """From images (samples, 3, side, side) to a hidden state (samples, tokens, width)."""
        patches = self.patches(images).flatten(2).transpose(1, 2)
        class_token = self.class_token.expand(patches.shape[0], 1, -1)
        return torch.cat((class_token, patches), dim=1) + self.positions


class ClassTokenHead(nn.Module):
    """Final norm and classifier on the class token; the norm is computed for that token only."""

    def __init__(self, hidden: int, norm: nn.Module) -> None:
        super().__init__()
        self.norm = norm
        self.project = nn.Linear(hidden, NUM_CLASSES)

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of shape (samples, classes)."""
        return self.project(self.norm(hidden[:, 0]))


def vit_modules(name: str, shape: VitShape, *, dropout: float | None) -> ModuleChain:
    """The layers of a vision transformer."""
    block = BlockShape(
        hidden=shape.hidden,
        heads=shape.heads,
        key_heads=shape.heads,
        blocks=shape.blocks,
        causal=False,
        norm_epsilon=NORM_EPSILON,
        dropout=dropout or 0.0,
    )
    embedding = LayerModule(name="embedding", build=lambda: init_normal(PatchEmbedding(shape)), operators=_PATCHES)
    head = LayerModule(
        name="head", build=lambda: init_normal(ClassTokenHead(shape.hidden, block.norm())), operators=_HEAD
    )
    return ModuleChain(
        name=name,
        layers=(embedding, *dense_layers(block, width=4 * shape.hidden), head),
        loss=class_loss,
        batch=partial(image_batch, channels=IMAGE_CHANNELS, side=IMAGE_SIDE, classes=NUM_CLASSES),
    )


def _run_patches(layer: PatchEmbedding, inputs: tuple[Tensor, ...], part: LoopPart) -> Tensor:
    """All patches are computed, even if only some tokens are wanted."""
    hidden, tokens = layer.patches(inputs[0]).flatten(2).transpose(1, 2), len(layer.positions)
    class_token = layer.class_token.expand(hidden.shape[0], 1, -1)
    first = part.start(TOKEN, tokens)
    return torch.cat((class_token, hidden), dim=1)[:, first : first + tokens] + layer.positions


_PATCHES = {
    "patches": OperatorModule(
        run=_run_patches,
        weights={
            "patches.weight": (HIDDEN, "channel", "patch row", "patch column"),
            "patches.bias": (HIDDEN,),
            "class_token": (HIDDEN,),
            "positions": (TOKEN, HIDDEN),
        },
    )
}
_HEAD = {
    "first token": OperatorModule(run=run_first_token, weights={}),
    "norm": norm_operator("norm", biased=True),
    "project": linear_operator("project", out="class", given="feature", biased=True),
}
