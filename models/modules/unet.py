"""U-Net in torch; skip edges are additional tensors of the state, the innermost last."""

from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.unet import IMAGE_CHANNELS, NUM_CLASSES, UnetShape
from stagecut.models.modules.batches import image_batch
from stagecut.models.modules.losses import pixel_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.weights import init_for_relu


class Passing(nn.Module):
    """Applies a module to the first tensor, and passes the skip edges on."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, images: Tensor, *skips: Tensor) -> tuple[Tensor, ...]:
        """Return as many tensors as there are inputs."""
        return (self.inner(images), *skips)


class Descending(Passing):
    """The last layer of a downward level: returns its result pooled, and as a skip edge."""

    def forward(self, images: Tensor, *skips: Tensor) -> tuple[Tensor, ...]:
        """Return one tensor more than there are inputs."""
        level = self.inner(images)
        return (functional.max_pool2d(level, 2), *skips, level)


class Joining(Passing):
    """The layer that consumes a skip edge, concatenated with its input."""

    def forward(self, images: Tensor, *skips: Tensor) -> tuple[Tensor, ...]:
        """Return one tensor less than there are inputs."""
        *outer, level = skips
        return (self.inner(torch.cat((images, level), dim=1)), *outer)


def unet_modules(name: str, shape: UnetShape) -> ModuleChain:
    """The layers of a U-Net."""
    head = LayerModule(name="head", build=partial(nn.Conv2d, shape.widths[0], NUM_CLASSES, 1))
    return ModuleChain(
        name=name,
        layers=(*_downward(shape), *_bottom(shape), *_upward(shape), head),
        loss=pixel_loss,
        batch=partial(image_batch, channels=IMAGE_CHANNELS, side=shape.side, classes=NUM_CLASSES, per_pixel=True),
    )


def _downward(shape: UnetShape) -> tuple[LayerModule, ...]:
    inputs = (IMAGE_CHANNELS, *shape.widths)
    return tuple(
        layer
        for level, width in enumerate(shape.widths)
        for layer in (
            _convolution_layer(f"down{level}.conv1", inputs[level], width),
            _convolution_layer(f"down{level}.conv2", width, width, kind=Descending),
        )
    )


def _bottom(shape: UnetShape) -> tuple[LayerModule, ...]:
    width = shape.widths[-1]
    return (
        _convolution_layer("bottom.conv1", width, 2 * width),
        _convolution_layer("bottom.conv2", 2 * width, 2 * width),
    )


def _upward(shape: UnetShape) -> tuple[LayerModule, ...]:
    return tuple(
        layer
        for level, width in reversed(tuple(enumerate(shape.widths)))
        for layer in (
            LayerModule(name=f"up{level}.grow", build=partial(_growing, width)),
            _convolution_layer(f"up{level}.conv1", 2 * width, width, kind=Joining),
            _convolution_layer(f"up{level}.conv2", width, width),
        )
    )


def _convolution_layer(name: str, inputs: int, outputs: int, *, kind: type[Passing] = Passing) -> LayerModule:
    return LayerModule(name=name, build=partial(_convolution, inputs, outputs, kind))


def _convolution(inputs: int, outputs: int, kind: type[Passing]) -> nn.Module:
    plain = nn.Conv2d(inputs, outputs, 3, padding=1)
    return init_for_relu(kind(nn.Sequential(plain, nn.ReLU(inplace=True))))


def _growing(outputs: int) -> nn.Module:
    return init_for_relu(Passing(nn.ConvTranspose2d(2 * outputs, outputs, 2, stride=2)))
