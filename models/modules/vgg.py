"""VGG networks in torch."""

from functools import partial

from torch import nn

from stagecut.models.families.convolution import Convolution
from stagecut.models.families.vgg import CLASSIFIER_WIDTH, IMAGE_CHANNELS, VggShape
from stagecut.models.modules.batches import image_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.weights import init_for_relu, init_normal

DROPOUT = 0.5
"""In the classifier's hidden layers (Simonyan and Zisserman 2015, section 3.1)."""
CLASSIFIER_DEVIATION = 0.01


def vgg_modules(name: str, shape: VggShape, *, dropout: float | None) -> ModuleChain:
    """The layers of a VGG."""
    chosen = DROPOUT if dropout is None else dropout
    convolutions = (
        LayerModule(name=each, build=partial(_convolution, convolution, pooled=pooled))
        for each, convolution, pooled in shape.convolutions()
    )
    *hidden, last = shape.classifier_widths
    products = (
        LayerModule(name=f"classifier{index}", build=partial(_hidden_product, width, chosen))
        for index, width in enumerate(hidden, start=1)
    )
    head = LayerModule(name=f"classifier{len(hidden) + 1}", build=partial(_product, last, shape.classes))
    return ModuleChain(
        name=name,
        layers=(*convolutions, *products, head),
        loss=class_loss,
        batch=partial(image_batch, channels=IMAGE_CHANNELS, side=shape.side, classes=shape.classes),
    )


def _convolution(convolution: Convolution, *, pooled: bool) -> nn.Module:
    plain = nn.Conv2d(convolution.inputs, convolution.outputs, convolution.kernel, padding=1)
    pooling = (nn.MaxPool2d(2),) if pooled else ()
    return init_for_relu(nn.Sequential(plain, nn.ReLU(inplace=True), *pooling))


def _product(inputs: int, outputs: int) -> nn.Module:
    return init_normal(nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs)), deviation=CLASSIFIER_DEVIATION)


def _hidden_product(inputs: int, dropout: float) -> nn.Module:
    return nn.Sequential(_product(inputs, CLASSIFIER_WIDTH), nn.ReLU(inplace=True), nn.Dropout(dropout))
