"""Operators that are products of their tensors, summed over what the output has not, played in numpy."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.operators.operators import Operator, Port, Split, Tensor, Weight

SIZE = 12
"""Of every dimension: each grid of up to three axes of 2 and 3 divides it."""


@dataclass(frozen=True, kw_only=True)
class Product:
    """An Einstein sum of inputs and weights; dimensions are letters."""

    inputs: tuple[str, ...]
    weights: tuple[str, ...]
    output: str
    bias: bool = False
    """Whether weights over the output's last dimension are added."""

    @property
    def operator(self):
        dims = dict.fromkeys("".join((*self.inputs, *self.weights)))
        weights = [Weight(name=f"w{index}", dims=tuple(own), num_bytes=1.0) for index, own in enumerate(self.weights)]
        if self.bias:
            weights.append(Weight(name="bias", dims=(self.output[-1],), num_bytes=1.0))
        return Operator(
            name="product",
            kind="linear",
            inputs=tuple(Port(tensor=f"x{index}", dims=tuple(own)) for index, own in enumerate(self.inputs)),
            outputs=(Tensor(name="y", dims=tuple(self.output), num_bytes=1.0),),
            weights=tuple(weights),
            splits=tuple(Split(dim=dim, size=SIZE) for dim in dims),
            passes_partial=len(self.inputs) == 1 and not self.bias,
        )

    def forward(self, tensors, *, bias_share=1.0):
        """The output; where p devices have summands of it, each adds 1 / p of the bias."""
        factors = tensors[: len(self.inputs) + len(self.weights)]
        output = np.einsum(self._formula(), *factors)
        return output + bias_share * tensors[-1] if self.bias else output

    def gradients(self, tensors, of_output, *, bias_share=1.0):
        """Gradients of all inputs and weights."""
        own = (*self.inputs, *self.weights)
        found = []
        for index, dims in enumerate(own):
            others = (*own[:index], *own[index + 1 :])
            factors = (*tensors[:index], *tensors[index + 1 : len(own)])
            missing = tuple(sorted(set(dims) - set("".join((self.output, *others)))))
            assert not missing
            found.append(np.einsum(f"{','.join((self.output, *others))}->{dims}", of_output, *factors))
        if self.bias:
            found.append(bias_share * of_output.sum(axis=tuple(range(of_output.ndim - 1))))
        return found

    def _formula(self):
        return f"{','.join((*self.inputs, *self.weights))}->{self.output}"
