"""Operators.

Every layer of the catalogue but those of U-Net and random models is a small graph of operators, each of which can be
divided along some of its dimensions, as the table says. Where the result does not have the dimension, `(+)`, each part
makes a summand of it. The counts of such a layer are the sums over its operators:

- parameters: the weights of its operators; a tied matrix counts as weights of the head's operator too
- FLOPs: of its operators
- saved: the input of the layer, which is held as it crosses the boundary, and every tensor that an operator makes and a
  backward needs; the `output` is never among them: the next layer counts it as its input
- working: for each operator the gradients of what it makes, where they count at the peak

Products of one input are one operator, so that a divided input is gathered once: queries, keys and values; gate and up.
A vocabulary is divided in multiples of 128, as if padded (Narayanan et al., SC 2021); padding is not counted. The last
layer's `output` has no bytes: nobody takes it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from stagecut.planner.core.operators.operators import HIDDEN, SAMPLE, TOKEN, Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.precision import Precision

STATE = (SAMPLE, TOKEN, HIDDEN)
"""Dimensions of what passes between the layers of a transformer."""
VOCABULARY = "vocabulary"
VOCABULARY_MULTIPLE = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorCounts:
    """A tensor in elements per sample."""

    name: str
    dims: tuple[str, ...]
    elements: int = 0
    """In the training precision."""
    fixed_bytes: int = 0
    """Bytes whatever the precision."""
    saved: bool = False

    def in_precision(self, precision: Precision) -> Tensor:
        """The same tensor in bytes."""
        num_bytes = float(precision.num_bytes * self.elements + self.fixed_bytes)
        return Tensor(name=self.name, dims=self.dims, num_bytes=num_bytes, saved=self.saved)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightCounts:
    """A weight in elements."""

    name: str
    dims: tuple[str, ...]
    elements: int
    shared: bool = False
    """Owned by another layer but also held here."""

    def in_precision(self, precision: Precision) -> Weight:
        """The same weight in bytes."""
        return Weight(name=self.name, dims=self.dims, num_bytes=float(precision.num_bytes * self.elements))


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorCounts:
    """An operator in elements per sample."""

    name: str
    kind: str
    inputs: tuple[Port, ...]
    outputs: tuple[TensorCounts, ...]
    weights: tuple[WeightCounts, ...] = ()
    splits: tuple[Split, ...]
    forward_flops: int = 0
    working: int = 0
    working_fixed_bytes: int = 0
    passes_partial: bool = False

    def params(self, *, shared: bool) -> int:
        """Parameters that the layer owns, or that it shares."""
        return sum(weight.elements for weight in self.weights if weight.shared is shared)

    def in_precision(self, precision: Precision) -> Operator:
        """The same operator in bytes."""
        return _in_precision(self, precision)


@lru_cache(maxsize=1024)
def _in_precision(counts: OperatorCounts, precision: Precision) -> Operator:
    return Operator(
        name=counts.name,
        kind=counts.kind,
        inputs=counts.inputs,
        outputs=tuple(tensor.in_precision(precision) for tensor in counts.outputs),
        weights=tuple(weight.in_precision(precision) for weight in counts.weights),
        splits=counts.splits,
        forward_flops=float(counts.forward_flops),
        working_bytes=float(precision.num_bytes * counts.working + counts.working_fixed_bytes),
        passes_partial=counts.passes_partial,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Dim:
    """A dimension of an operator."""

    name: str
    size: int
    """Elements."""
    units: int | None = None
    """What the number of parts has to divide, such as heads; None: the elements."""

    @property
    def split(self) -> Split:
        """The division along it."""
        return Split(dim=self.name, size=self.units or self.size)


def splits(*dims: Dim) -> tuple[Split, ...]:
    """The samples, and these dimensions."""
    return (Split(dim=SAMPLE), *(dim.split for dim in dims))


def vocabulary_dim(size: int) -> Dim:
    """The vocabulary, padded to a multiple that many devices can divide."""
    padded = VOCABULARY_MULTIPLE * math.ceil(size / VOCABULARY_MULTIPLE)
    return Dim(name=VOCABULARY, size=size, units=padded)


def linear(
    name: str,
    taken: str,
    *,
    made: Mapping[str, int],
    given: Dim,
    out: Dim,
    over: tuple[Dim, ...] = (),
    biased: bool = True,
    saved: bool = False,
    shared: bool = False,
    working: int | None = None,
) -> OperatorCounts:
    """A product with a matrix of `out.size` rows and `given.size` columns, for every element of the dimensions `over`.

    `made` are the tensors that divide its rows among them. It can be divided along every dimension; along that of its
    input it is a sum. While it runs, it holds the gradients of what it makes, unless `working` says otherwise.
    """
    lead = math.prod(dim.size for dim in over)
    lead_dims = (SAMPLE, *(dim.name for dim in over))
    bias = WeightCounts(name="bias", dims=(out.name,), elements=out.size)
    matrix = WeightCounts(name="weight", dims=(out.name, given.name), elements=out.size * given.size, shared=shared)
    return OperatorCounts(
        name=name,
        kind="linear",
        inputs=(Port(tensor=taken, dims=(*lead_dims, given.name)),),
        outputs=tuple(
            TensorCounts(name=tensor, dims=(*lead_dims, out.name), elements=lead * rows, saved=saved)
            for tensor, rows in made.items()
        ),
        weights=(matrix, bias) if biased else (matrix,),
        splits=splits(*over, out, given),
        forward_flops=2 * lead * out.size * given.size,
        working=lead * out.size if working is None else working,
        passes_partial=not biased,
    )


def elementwise(
    name: str,
    taken: tuple[str, ...],
    *made: TensorCounts,
    over: tuple[Dim, ...],
    whole: tuple[str, ...] = (),
    kind: str = "elementwise",
    weights: tuple[WeightCounts, ...] = (),
    working: int = 0,
) -> OperatorCounts:
    """What works on each element of the dimensions `over` alone, with all elements of the dimensions `whole`."""
    dims = (SAMPLE, *(dim.name for dim in over), *whole)
    return OperatorCounts(
        name=name,
        kind=kind,
        inputs=tuple(Port(tensor=tensor, dims=dims) for tensor in taken),
        outputs=made,
        weights=weights,
        splits=splits(*over),
        working=working,
    )
