"""A model as a chain of layers."""

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from stagecut.planner.core.messages.checks import require, require_count, require_distinct, require_non_negative
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.operators import Operator
from stagecut.planner.core.precision import Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeTable:
    """Measured times of one layer on one device type by micro-batch size, without collectives."""

    device_type: str
    tensor_parallel: int = 1
    """Number of devices that shared the layer."""
    samples: tuple[int, ...]
    """Micro-batch sizes, increasing."""
    forward_s: tuple[float, ...]
    backward_s: tuple[float, ...]

    def __post_init__(self) -> None:
        owner = f"times on {self.device_type}"
        require(len(self.samples) > 0, owner, "samples", "not empty", self.samples)
        require_count(owner, "tensor_parallel", self.tensor_parallel)
        rising = all(a < b for a, b in pairwise((0, *self.samples)))
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
    """Unique within the model."""
    kind: str = "layer"
    """Kind of layer, for display: embedding, attention, feed-forward ..."""
    params_bytes: float = 0.0
    """Bytes of weights in the profile's precision."""
    shared_params_bytes: float = 0.0
    """Bytes of weights owned by another layer (such as a tied embedding) that this layer also holds and updates."""
    forward_flops: float = 0.0
    """Floating-point operations of a forward, per sample; a backward takes twice as many."""
    saved_bytes: float = 0.0
    """Bytes kept from forward to backward, per sample, including the layer's input."""
    output_bytes: float = 0.0
    """Bytes passed to the next layer, per sample."""
    working_bytes: float = 0.0
    """Additional bytes needed while the layer runs, per sample."""
    tensor_parallel_bytes: float | None = None
    """Bytes all-reduced per direction and sample when devices share the layer; None: they cannot share it."""
    times: tuple[TimeTable, ...] = ()
    """Measured times; other device types are estimated by the roofline model."""
    operators: tuple[Operator, ...] = ()
    """Its operators, each after those whose tensors it takes; none: one operator that only samples can divide."""

    def __post_init__(self) -> None:
        owner = f"layer {self.name!r}"
        require(bool(self.name), "layer", "name", "not empty", self.name)
        sizes = ("params_bytes", "shared_params_bytes", "forward_flops", "saved_bytes", "output_bytes", "working_bytes")
        for field in (*sizes, "tensor_parallel_bytes"):
            require_non_negative(owner, field, getattr(self, field) or 0.0)
        shared = [table.tensor_parallel for table in self.times if table.tensor_parallel > 1]
        rule = "given if there are times for several devices"
        require(not shared or self.tensor_parallel_bytes is not None, owner, "tensor_parallel_bytes", rule, None)
        tables = ((table.device_type, table.tensor_parallel) for table in self.times)
        require_distinct(owner, "device types with times", (f"{name} x{degree}" for name, degree in tables))

    @property
    def saved_input_bytes(self) -> float:
        """Of `saved_bytes`, what no operator makes: the layer's input, which is held as it crosses the boundary."""
        made = (tensor for operator in self.operators for tensor in operator.outputs)
        return max(0.0, self.saved_bytes - sum(tensor.num_bytes for tensor in made if tensor.saved))

    def table(self, device_type: str, tensor_parallel: int = 1) -> TimeTable | None:
        """The times measured on that many devices of that type, if any."""
        wanted = (device_type, tensor_parallel)
        return next((table for table in self.times if (table.device_type, table.tensor_parallel) == wanted), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipEdge:
    """A tensor made by layer `source` and used by later layers, last by `target`."""

    source: int
    target: int
    num_bytes: float
    """Bytes per sample."""
    earlier_targets: tuple[int, ...] = ()
    """Layers in between that also use it, increasing; it passes them on its way anyway."""

    @property
    def targets(self) -> tuple[int, ...]:
        """All layers that use it, in increasing order."""
        return (*self.earlier_targets, self.target)


@dataclass(frozen=True, kw_only=True)
class ModelProfile:
    """A chain of layers with optional skip edges."""

    name: str
    """Name of the model."""
    layers: tuple[Layer, ...]
    """The chain, in order."""
    skip_edges: tuple[SkipEdge, ...] = ()
    """Tensors used by layers other than the next one."""
    precision: Precision = Precision.FP16
    """Number format for which bytes were counted and times measured."""
    sequence_length: int | None = None
    """Tokens per sample, if the model has tokens."""

    def __post_init__(self) -> None:
        owner = f"model {self.name!r}"
        require(len(self.layers) > 0, owner, "layers", "not empty", ())
        require_distinct(owner, "layer names", (layer.name for layer in self.layers))
        for edge in self.skip_edges:
            ends = (edge.source, *edge.targets)
            inside = edge.source >= 0 and edge.target < len(self.layers) and all(a < b for a, b in pairwise(ends))
            rule = f"forward, to each layer once, and within 0..{len(self.layers) - 1}"
            require(inside, owner, "skip edge", rule, ends)
            require_non_negative(owner, "skip edge bytes", edge.num_bytes)

    @property
    def num_layers(self) -> int:
        """Length L of the chain."""
        return len(self.layers)

    @property
    def num_params(self) -> float:
        """Number of parameters of the model."""
        return sum(layer.params_bytes for layer in self.layers) / self.precision.num_bytes

    @cached_property
    def head_sizes(self) -> frozenset[int]:
        """Numbers of heads that operators can be divided by."""
        operators = (operator for layer in self.layers for operator in layer.operators)
        splits = (split for operator in operators for split in operator.splits)
        return frozenset(split.size for split in splits if split.dim == "head" and split.size is not None)

    @property
    def unmerged(self) -> tuple["ModelProfile", Ints]:
        """The layers that costs are known of, and where those of each layer begin, shape (L + 1,): these themselves.

        Others in a :class:`stagecut.planner.core.merged_model.MergedModel`.
        """
        return self, np.arange(self.num_layers + 1)

    def boundary_bytes(self) -> Floats:
        """Bytes per sample that cross each boundary, shape (L + 1,).

        Boundary j is before layer j. The output of layer j - 1 crosses it, and every skip edge made before j
        and used at or after j, each once. Nothing crosses the two ends.
        """
        crossing = np.zeros(self.num_layers + 1)
        crossing[1:-1] = [layer.output_bytes for layer in self.layers[:-1]]
        for edge in self.skip_edges:
            crossing[edge.source + 1 : edge.target + 1] += edge.num_bytes
        return crossing
