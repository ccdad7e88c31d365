"""Models whose layers are runs of another model's: what lies between two boundaries where stages may end."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.numerics.arrays import Floats, Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedModel(ModelProfile):
    """A chain of runs of layers; a stage of runs costs what a stage of their layers costs."""

    chain: ModelProfile
    """The layers, which costs are known of."""
    begins: tuple[int, ...]
    """Where the runs begin, and the length of the chain."""

    def boundary_bytes(self) -> Floats:
        """Bytes per sample that cross each boundary between runs, and its two ends."""
        crossing: Floats = self.chain.boundary_bytes()[list(self.begins)]
        return crossing

    @property
    def unmerged(self) -> tuple[ModelProfile, Ints]:
        """The chain, and where the runs begin in it."""
        return self.chain, np.array(self.begins)


def merged(model: ModelProfile, cuts: Sequence[int]) -> ModelProfile:
    """The model with only these boundaries, rising and inside the chain; itself if these are all."""
    if len(cuts) == model.num_layers - 1:
        return model
    begins = (0, *cuts, model.num_layers)
    return MergedModel(
        name=model.name,
        layers=tuple(_run(model.layers[start:stop]) for start, stop in pairwise(begins)),
        precision=model.precision,
        sequence_length=model.sequence_length,
        chain=model,
        begins=begins,
    )


def _run(layers: Sequence[Layer]) -> Layer:
    """What heuristics look at: sums, and maxima of what is needed one layer after another."""
    if len(layers) == 1:
        return layers[0]
    divided = [layer.tensor_parallel_bytes for layer in layers if layer.tensor_parallel_bytes is not None]
    return Layer(
        name=f"{layers[0].name} .. {layers[-1].name}",
        kind="block",
        params_bytes=sum(layer.params_bytes for layer in layers),
        shared_params_bytes=sum(layer.shared_params_bytes for layer in layers),
        forward_flops=sum(layer.forward_flops for layer in layers),
        saved_bytes=sum(layer.saved_bytes for layer in layers),
        output_bytes=layers[-1].output_bytes,
        working_bytes=max(layer.working_bytes for layer in layers),
        tensor_parallel_bytes=sum(divided) if divided else None,
    )
