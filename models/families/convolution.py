"""Convolutions.

From `c` channels to `o` channels with a kernel of `q x q`, on an output of `y x y`:

- parameters: `q^2 c o`, with a bias `+ o`; a batch norm after it adds `2 o` (its running statistics are not trained)
- forward FLOPs: `2 q^2 c o y^2`
- output: `o y^2`

ReLUs work in place: their output is also their saved tensor, which the next layer counts as its input. Layers of
convolutional models do not support tensor parallelism.
"""

from dataclasses import dataclass

from stagecut.models.families.chain import INDEX_BYTES, LayerCounts, layer_of
from stagecut.models.families.operators import Dim, OperatorCounts, TensorCounts, WeightCounts, elementwise, splits
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Port

CHANNEL, CHANNEL_IN = "channel", "channel in"
PIXELS = ("row", "column")


@dataclass(frozen=True, slots=True, kw_only=True)
class Convolution:
    """One convolution."""

    inputs: int
    """Channels."""
    outputs: int
    """Channels."""
    kernel: int
    side: int
    """Side of the output in pixels."""
    biased: bool = True

    @property
    def weights(self) -> int:
        """Weights without bias."""
        return self.kernel**2 * self.inputs * self.outputs

    @property
    def forward_flops(self) -> int:
        """FLOPs per sample."""
        return 2 * self.weights * self.side**2

    @property
    def channel(self) -> Dim:
        """The channels of its output."""
        return Dim(name=CHANNEL, size=self.outputs)

    @property
    def output(self) -> int:
        """Elements of the output."""
        return self.outputs * self.side**2


def convolution_layer(name: str, convolution: Convolution, *, pooled: bool) -> LayerCounts:
    """A convolution with its ReLU and, if `pooled`, a max pooling that halves the side."""
    given = convolution.inputs * convolution.side**2
    product = convolved("convolution", INPUT, "convolved", convolution, working=given)
    relu = elementwise(
        "relu",
        ("convolved",),
        image("activated" if pooled else OUTPUT, convolution.output, saved=pooled),
        over=(convolution.channel,),
        whole=PIXELS,
        working=convolution.output,
    )
    pooling = (max_pooling(convolution),) if pooled else ()
    return layer_of(name, (product, relu, *pooling), kind="convolution", saved_input=given)


def image(name: str, elements: int, *, saved: bool) -> TensorCounts:
    """What a convolution makes."""
    return TensorCounts(name=name, dims=(SAMPLE, CHANNEL, *PIXELS), elements=elements, saved=saved)


def max_pooling(convolution: Convolution) -> OperatorCounts:
    """From what is made of a convolution to the layer's output of half the side."""
    elements, dims = convolution.output // 4, (SAMPLE, CHANNEL, *PIXELS)
    places = TensorCounts(name="places", dims=dims, fixed_bytes=INDEX_BYTES * elements, saved=True)
    output = image(OUTPUT, elements, saved=False)
    over = (convolution.channel,)
    return elementwise("pool", ("activated",), output, places, over=over, whole=PIXELS, working=elements)


def convolved(
    name: str, taken: str, made: str, convolution: Convolution, *, saved: bool = False, working: int = 0
) -> OperatorCounts:
    """A convolution; along its input channels it is a sum."""
    given = Dim(name=CHANNEL_IN, size=convolution.inputs)
    kernel = ("kernel row", "kernel column")
    weight = WeightCounts(
        name="weight",
        dims=(CHANNEL, CHANNEL_IN, *kernel),
        elements=convolution.weights,
    )
    bias = WeightCounts(name="bias", dims=(CHANNEL,), elements=convolution.outputs)
    return OperatorCounts(
        name=name,
        kind="convolution",
        inputs=(Port(tensor=taken, dims=(SAMPLE, CHANNEL_IN, *PIXELS)),),
        outputs=(image(made, convolution.output, saved=saved),),
        weights=(weight, bias) if convolution.biased else (weight,),
        splits=splits(convolution.channel, given),
        forward_flops=convolution.forward_flops,
        working=working,
        passes_partial=not convolution.biased,
    )


def batch_norm(name: str, taken: str, made: str, convolution: Convolution, *, relu: bool) -> OperatorCounts:
    """Batch norm, with a ReLU in place if its result is saved for that."""
    weights = tuple(
        WeightCounts(name=weight, dims=(CHANNEL,), elements=convolution.outputs) for weight in ("weight", "bias")
    )
    return elementwise(
        name,
        (taken,),
        image(made, convolution.output, saved=relu),
        kind="norm",
        over=(convolution.channel,),
        whole=PIXELS,
        weights=weights,
    )
