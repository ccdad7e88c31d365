"""Convolutions.

From `c` channels to `o` channels with a kernel of `q x q`, on an output of `y x y`:

- parameters: `q^2 c o`, with a bias `+ o`; a batch norm after it adds `2 o` (its running statistics are not trained)
- forward FLOPs: `2 q^2 c o y^2`
- output: `o y^2`

ReLUs work in place: their output is also their saved tensor, which the next layer counts as its input. Layers of
convolutional models do not support tensor parallelism.
"""

from dataclasses import dataclass

from stagecut.models.families.chain import INDEX_BYTES, LayerCounts


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
    normed: bool = False
    """Followed by a batch norm."""

    @property
    def params(self) -> int:
        """Weights, bias and batch norm."""
        weights = self.kernel**2 * self.inputs * self.outputs
        return weights + self.outputs * self.biased + 2 * self.outputs * self.normed

    @property
    def forward_flops(self) -> int:
        """FLOPs per sample."""
        return 2 * self.kernel**2 * self.inputs * self.outputs * self.side**2

    @property
    def output(self) -> int:
        """Elements of the output."""
        return self.outputs * self.side**2


def convolution_layer(name: str, convolution: Convolution, *, pooled: bool) -> LayerCounts:
    """A convolution with its ReLU and, if `pooled`, a max pooling that halves the side."""
    given = convolution.inputs * convolution.side**2
    output = convolution.output // 4 if pooled else convolution.output
    return LayerCounts(
        name=name,
        kind="convolution",
        params=convolution.params,
        forward_flops=convolution.forward_flops,
        saved=given + convolution.output * pooled,
        saved_fixed_bytes=INDEX_BYTES * output * pooled,
        output=output,
        working=given + convolution.output + output * pooled,
    )
