"""A layer as a small graph of operators, of which each may be divided over devices in a way of its own.

An operator is a loop over named dimensions. A tensor names the dimensions that it has; what the loop has beyond those
of its output is summed over. Dividing the loop along a dimension divides each tensor that has it: this single rule
gives the placements of every strategy (GSPMD, arXiv 2105.04663; AutoDDL, IEEE TPDS 2024).
"""

from dataclasses import dataclass

from stagecut.planner.core.messages.checks import require, require_count, require_distinct, require_non_negative

SAMPLE, TOKEN, HIDDEN = "sample", "token", "hidden"
INPUT, OUTPUT = "input", "output"
"""Names of the tensors that a layer takes and returns."""
RESERVED = WHOLE, PARTIAL = "whole", "partial"
"""Words of plan files for loops that are not divided, and for partial sums."""
SUM, DISPATCH = "sum", "dispatch"
"""Kinds of operators whose backward does not need what they take: sums and means, and choices of rows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What an operator computes for one sample."""

    name: str
    """Unique within the layer; `OUTPUT` for what the layer returns."""
    dims: tuple[str, ...]
    """Names of its dimensions, in torch's order."""
    num_bytes: float
    """Bytes per sample."""
    saved: bool = False
    """Whether a backward needs it. A tensor that no operator takes, such as a dropout mask, is only saved."""

    def __post_init__(self) -> None:
        require_distinct(f"tensor {self.name!r}", "dims", self.dims)
        require_non_negative(f"tensor {self.name!r}", "num_bytes", self.num_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """A tensor as an operator takes it."""

    tensor: str
    """Name of a tensor of an earlier operator, or `INPUT`."""
    dims: tuple[str, ...]
    """The operator's own names of the dimensions, in the tensor's order: keys have `key token` where queries have
    `token`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """Weights of an operator."""

    name: str
    """Unique within the operator."""
    dims: tuple[str, ...]
    """In torch's order."""
    num_bytes: float
    """Bytes in the precision of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """A dimension along which an operator can be divided."""

    dim: str
    """Name of the dimension."""
    size: int | None = None
    """What the number of parts has to divide: heads, experts, tokens ...; None: the samples of a micro-batch."""

    def __post_init__(self) -> None:
        require(self.dim not in RESERVED, "operator", "dimensions", f"not called {' or '.join(RESERVED)}", self.dim)
        if self.size is not None:
            require_count(f"dimension {self.dim!r}", "size", self.size)


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One step of a layer."""

    name: str
    """Unique within the layer."""
    kind: str
    """linear, attention, norm, elementwise, sum, embedding, convolution, experts, loss ..."""
    inputs: tuple[Port, ...]
    outputs: tuple[Tensor, ...]
    weights: tuple[Weight, ...] = ()
    splits: tuple[Split, ...] = (Split(dim=SAMPLE),)
    """Every dimension along which it can be divided."""
    forward_flops: float = 0.0
    """Floating-point operations of a forward, per sample."""
    working_bytes: float = 0.0
    """Additional bytes needed while it runs, per sample."""
    passes_partial: bool = False
    """Whether it is linear in all its inputs together and adds no bias, so that partial sums give partial sums."""

    def __post_init__(self) -> None:
        owner = f"operator {self.name!r}"
        require(len(self.outputs) > 0, owner, "outputs", "not empty", ())
        require_distinct(owner, "dimensions of splits", (split.dim for split in self.splits))
        for field in ("forward_flops", "working_bytes"):
            require_non_negative(owner, field, getattr(self, field))

    @property
    def weight_bytes(self) -> float:
        """Bytes of all its weights."""
        return sum(weight.num_bytes for weight in self.weights)

    @property
    def needs_inputs(self) -> bool:
        """Whether its backward needs what it takes; what was gathered for it is then gathered again."""
        return self.kind not in (SUM, DISPATCH)
