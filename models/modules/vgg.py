"""VGG networks in torch."""

from functools import partial
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from stagecut.models.families.convolution import Convolution
from stagecut.models.families.vgg import CLASSIFIER_WIDTH, IMAGE_CHANNELS, VggShape
from stagecut.models.modules.batches import image_batch
from stagecut.models.modules.losses import class_loss
from stagecut.models.modules.module_chain import LayerModule, ModuleChain
from stagecut.models.modules.operators import LoopPart, OperatorModule
from stagecut.models.modules.transformer_operators import linear_weights, product
from stagecut.models.modules.weights import init_for_relu, init_normal

DROPOUT = 0.5
"""In the classifier's hidden layers (Simonyan and Zisserman 2015, section 3.1)."""
CLASSIFIER_DEVIATION = 0.01


def vgg_modules(name: str, shape: VggShape, *, dropout: float | None) -> ModuleChain:
    """The layers of a VGG."""
    chosen = DROPOUT if dropout is None else dropout
    convolutions = (
        LayerModule(name=each, build=partial(_convolution, convolution, pooled=pooled), operators=_CONVOLUTION)
        for each, convolution, pooled in shape.convolutions()
    )
    *hidden, last = shape.classifier_widths
    products = (
        LayerModule(
            name=f"classifier{index}",
            build=partial(_hidden_product, width, chosen),
            operators={**_product_operator("product", "0.1", out="width"), "relu": _hidden_relu(draws=chosen > 0)},
        )
        for index, width in enumerate(hidden, start=1)
    )
    head = LayerModule(
        name=f"classifier{len(hidden) + 1}",
        build=partial(_product, last, shape.classes),
        operators=_product_operator("project", "1", out="class"),
    )
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


def _run_convolution(layer: nn.Sequential, inputs: tuple[Tensor, ...], part: LoopPart) -> Tensor:
    own: Any = layer[0]
    return functional.conv2d(inputs[0], own.weight, own.bias if part.adds_once else None, padding=1)


def _run_product(name: str, layer: nn.Sequential, inputs: tuple[Tensor, ...], part: LoopPart) -> Tensor:
    """Parts of the flattened channels are whole channels."""
    own: Any = layer.get_submodule(name)
    return product(own, inputs[0].flatten(1), part)


def _product_operator(operator: str, name: str, *, out: str) -> dict[str, OperatorModule]:
    weights = linear_weights(name, out=out, given="feature", biased=True)
    return {operator: OperatorModule(run=partial(_run_product, name), weights=weights)}


def _hidden_relu(*, draws: bool) -> OperatorModule:
    return OperatorModule(run=lambda layer, inputs, _: layer[2](functional.relu(inputs[0])), weights={}, draws=draws)


_CONVOLUTION = {
    "convolution": OperatorModule(
        run=_run_convolution,
        weights={"0.weight": ("channel", "channel in", "kernel row", "kernel column"), "0.bias": ("channel",)},
    ),
    "relu": OperatorModule(run=lambda _, inputs, __: functional.relu(inputs[0]), weights={}),
    "pool": OperatorModule(run=lambda _, inputs, __: functional.max_pool2d(inputs[0], 2), weights={}),
}
