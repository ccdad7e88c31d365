"""Residual networks in torch."""

from functools import partial

from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.convolution import Convolution
from stagecut.models.families.image_head import NUM_CLASSES
from stagecut.models.families.resnet import EXPANSION, IMAGE_SIDE, STEM_CHANNELS, WIDTHS, Bottleneck, ResnetShape
from stagecut.models.modules.batches import image_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.weights import init_for_relu

IMAGE_CHANNELS = 3


class BottleneckBlock(nn.Module):
    """Three convolutions, and a projection where the shape changes."""

    def __init__(self, block: Bottleneck) -> None:
        super().__init__()
        reduce, spatial, widen, *project = block.convolutions
        self.reduce = normed(reduce)
        self.spatial = normed(spatial, stride=block.stride)
        self.widen = normed(widen)
        self.project = normed(project[0], stride=block.stride) if project else nn.Identity()

    def forward(self, images: Tensor) -> Tensor:
        """Shape (samples, channels, side, side) in and out."""
        reduced = functional.relu(self.reduce(images), inplace=True)
        spatial = functional.relu(self.spatial(reduced), inplace=True)
        return functional.relu(self.widen(spatial) + self.project(images), inplace=True)


def normed(convolution: Convolution, *, stride: int = 1) -> nn.Module:
    """A padded convolution without bias, and its batch norm."""
    plain = nn.Conv2d(
        convolution.inputs,
        convolution.outputs,
        convolution.kernel,
        stride=stride,
        padding=convolution.kernel // 2,
        bias=False,
    )
    return nn.Sequential(plain, nn.BatchNorm2d(convolution.outputs))


def resnet_modules(name: str, shape: ResnetShape) -> ModuleChain:
    """The layers of a residual network."""
    blocks = (LayerModule(name=each, build=partial(_block, block)) for each, block in shape.blocks())
    return ModuleChain(
        name=name,
        layers=(LayerModule(name="stem", build=_stem), *blocks, LayerModule(name="head", build=_head)),
        loss=class_loss,
        batch=partial(image_batch, channels=IMAGE_CHANNELS, side=IMAGE_SIDE, classes=NUM_CLASSES),
    )


def _stem() -> nn.Module:
    convolution = Convolution(inputs=IMAGE_CHANNELS, outputs=STEM_CHANNELS, kernel=7, side=IMAGE_SIDE // 2)
    pooling = nn.MaxPool2d(3, stride=2, padding=1)
    return init_for_relu(nn.Sequential(normed(convolution, stride=2), nn.ReLU(inplace=True), pooling))


def _block(block: Bottleneck) -> nn.Module:
    return init_for_relu(BottleneckBlock(block))


def _head() -> nn.Module:
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(EXPANSION * WIDTHS[-1], NUM_CLASSES))
