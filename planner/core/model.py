"""A model as a chain of layers."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.checks import require, require_count, require_distinct, require_non_negative
from stagecut.planner.core.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Measured times of one layer on one device type, by micro-batch size; collectives not included."""

    device_type: str
    tensor_parallel: int = 1
    """Devices that shared the layer."""
    samples: tuple[int, ...]
    """Micro-batch sizes, increasing."""
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    def __post_init__(self) -> None:
        owner = f"times on {self.device_type}"
        require(len(self.samples) > 0, owner, "samples", "not empty", self.samples)
        require_count(owner, "tensor_parallel", self.tensor_parallel)
        rising = all(a < b for a, b in zip((0, *self.samples), self.samples, strict=False))
        require(rising, owner, "samples", "positive and increasing", self.samples)
        for field in ("forward_s", "backward_s"):
            values: tuple[float, ...] = getattr(self, field)
            require(len(values) == len(self.samples), owner, field, "one per sample size", values)
            for value in values:
                require_non_negative(owner, field, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The smallest unit of the partition: an embedding, an attention part, a block ..."""

    name: str
    kind: str = "layer"
    params_bytes: float = 0.0
    """Weights in the training precision."""
    shared_params_bytes: float = 0.0
    """Copy of weights owned by another layer (a tied embedding): held and updated here too, not counted again."""
    forward_flops: float = 0.0
    """Per sample; a backward counts twice as much."""
    saved_bytes: float = 0.0
    """Kept from forward to backward, per sample, the layer's own input included."""
    output_bytes: float = 0.0
    """Handed to the next layer, per sample."""
    working_bytes: float = 0.0
    """Needed on top while the layer runs, per sample."""
    tensor_parallel_bytes: float | None = None
    """All-reduced in each direction where several devices share the layer, per sample; None: it cannot be shared."""
    times: tuple[TimeTable, ...] = ()
    """Measured; a device type without a table is estimated by the roofline."""

    def __post_init__(self) -> None:
        owner = f"layer {self.name!r}"
        require(bool(self.name), "layer", "name", "not empty", self.name)
        for field in (
            "params_bytes",
            "shared_params_bytes",
            "forward_flops",
            "saved_bytes",
            "output_bytes",
            "working_bytes",
        ):
            require_non_negative(owner, field, getattr(self, field))
        if self.tensor_parallel_bytes is not None:
            require_non_negative(owner, "tensor_parallel_bytes", self.tensor_parallel_bytes)
        shared = [table.tensor_parallel for table in self.times if table.tensor_parallel > 1]
        rule = "given where there are times of several devices"
        require(not shared or self.tensor_parallel_bytes is not None, owner, "tensor_parallel_bytes", rule, None)
        tables = ((table.device_type, table.tensor_parallel) for table in self.times)
        require_distinct(owner, "device types with times", (f"{name} x{degree}" for name, degree in tables))

    def table(self, device_type: str, tensor_parallel: int = 1) -> TimeTable | None:
        """The times measured on that many devices of that type, if there are any."""
        wanted = (device_type, tensor_parallel)
        return next((table for table in self.times if (table.device_type, table.tensor_parallel) == wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipEdge:
    """A tensor of its own, made by layer `source`, used by later layers and last by `target`."""

    source: int
    target: int
    num_bytes: float
    """Per sample."""
    earlier_targets: tuple[int, ...] = ()
    """Layers between the two that use it as well, increasing: on the way to the last one it passes them anyhow."""

    @property
    def targets(self) -> tuple[int, ...]:
        """All layers that use it, increasing."""
        return (*self.earlier_targets, self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """A chain of layers with optional skip edges."""

    name: str
    layers: tuple[Layer, ...]
    skip_edges: tuple[SkipEdge, ...] = ()
    precision: Precision = Precision.FP16
    """The format in which all byte figures were counted."""
    sequence_length: int | None = None
    """Tokens of one sample, where the model has tokens."""

    def __post_init__(self) -> None:
        owner = f"model {self.name!r}"
        require(len(self.layers) > 0, owner, "layers", "not empty", ())
        require_distinct(owner, "layer names", (layer.name for layer in self.layers))
        for edge in self.skip_edges:
            ends = (edge.source, *edge.targets)
            inside = edge.source >= 0 and edge.target < len(self.layers) and all(a < b for a, b in pairwise(ends))
            rule = f"forward, to each layer once and inside 0..{len(self.layers) - 1}"
            require(inside, owner, "skip edge", rule, ends)
            require_non_negative(owner, "skip edge bytes", edge.num_bytes)

    @property
    def num_layers(self) -> int:
        """L, the length of the chain."""
        return len(self.layers)

    @property
    def num_params(self) -> float:
        """Parameters of the whole model."""
        return sum(layer.params_bytes for layer in self.layers) / self.precision.num_bytes

    def boundary_bytes(self) -> Floats:
        """Bytes per sample that cross each boundary, shape (L + 1,).

        Boundary j lies before layer j. Every tensor counts once: the output of layer j - 1, and
        each skip edge made before j and used at or after it. Nothing crosses the two ends.
        """
        crossing = np.zeros(self.num_layers + 1)
        crossing[1:-1] = [layer.output_bytes for layer in self.layers[:-1]]
        for edge in self.skip_edges:
            crossing[edge.source + 1 : edge.target + 1] += edge.num_bytes
        return crossing
