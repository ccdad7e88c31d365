"""Layers counted in elements, before a precision turns them into bytes.

- All counts are per sample. An element takes `e` bytes in the training precision: 2 for fp16 and bf16, 4 for fp32.
  Weights and activations take `e` bytes each; what does not depend on the precision is counted in bytes: dropout
  masks (1), token ids, labels and pooling indices (8), softmax statistics and the loss (fp32: 4).
- A multiply-add is 2 FLOPs. Matrix products and convolutions are counted; norms, activation functions, sums and
  lookups are not. The cost model takes a backward as twice the forward.
- `saved` covers every tensor that the backward needs, including the layer's input but not its output, which is the
  input of the next layer and counted there.
- `working` is the peak of temporaries in addition to what is saved, reached during the backward: gradients of
  activations. Library workspaces are not counted.
- `output` is the input of the next layer.
- `all_reduced` is what tensor-parallel devices all-reduce in each direction; a layer without it is replicated on
  them.
"""

from dataclasses import dataclass

from stagecut.models.families.operators import OperatorCounts
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge
from stagecut.planner.core.operators.operators import OUTPUT
from stagecut.planner.core.precision import Precision

MASK_BYTES = 1
"""Per element of a dropout mask."""
INDEX_BYTES = 8
"""Per token id, label or pooling index: int64."""
FP32_BYTES = 4
"""Per element that is kept in fp32 whatever the precision."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCounts:
    """A layer in elements per sample."""

    name: str
    kind: str
    params: int = 0
    shared_params: int = 0
    """Owned by another layer but also held here."""
    forward_flops: int = 0
    saved: int = 0
    """Elements in the training precision."""
    saved_fixed_bytes: int = 0
    """Bytes saved whatever the precision."""
    output: int = 0
    working: int = 0
    working_fixed_bytes: int = 0
    all_reduced: float | None = None
    """Elements in the training precision, in each direction; None: no support for tensor parallelism."""
    operators: tuple[OperatorCounts, ...] = ()

    def in_precision(self, precision: Precision) -> Layer:
        """The same layer in bytes."""
        size = precision.num_bytes
        return Layer(
            name=self.name,
            kind=self.kind,
            params_bytes=float(size * self.params),
            shared_params_bytes=float(size * self.shared_params),
            forward_flops=float(self.forward_flops),
            saved_bytes=float(size * self.saved + self.saved_fixed_bytes),
            output_bytes=float(size * self.output),
            working_bytes=float(size * self.working + self.working_fixed_bytes),
            tensor_parallel_bytes=None if self.all_reduced is None else float(size * self.all_reduced),
            operators=tuple(operator.in_precision(precision) for operator in self.operators),
        )


def layer_of(
    name: str,
    operators: tuple[OperatorCounts, ...],
    *,
    kind: str,
    saved_input: int = 0,
    saved_input_fixed_bytes: int = 0,
    all_reduced: float | None = None,
) -> LayerCounts:
    """The layer that consists of these operators: its counts are their sums."""
    made = [tensor for operator in operators for tensor in operator.outputs]
    saved = [tensor for tensor in made if tensor.saved]
    return LayerCounts(
        name=name,
        kind=kind,
        params=sum(operator.params(shared=False) for operator in operators),
        shared_params=sum(operator.params(shared=True) for operator in operators),
        forward_flops=sum(operator.forward_flops for operator in operators),
        saved=saved_input + sum(tensor.elements for tensor in saved),
        saved_fixed_bytes=saved_input_fixed_bytes + sum(tensor.fixed_bytes for tensor in saved),
        output=sum(tensor.elements for tensor in made if tensor.name == OUTPUT),
        working=sum(operator.working for operator in operators),
        working_fixed_bytes=sum(operator.working_fixed_bytes for operator in operators),
        all_reduced=all_reduced,
        operators=operators,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SkipCount:
    """A tensor from one layer to a later one that is not the next."""

    source: int
    target: int
    elements: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """A model in elements per sample."""

    layers: tuple[LayerCounts, ...]
    skips: tuple[SkipCount, ...] = ()

    def in_precision(self, precision: Precision, *, name: str, sequence_length: int | None) -> ModelProfile:
        """The same model in bytes."""
        return ModelProfile(
            name=name,
            layers=tuple(layer.in_precision(precision) for layer in self.layers),
            skip_edges=tuple(
                SkipEdge(source=skip.source, target=skip.target, num_bytes=float(precision.num_bytes * skip.elements))
                for skip in self.skips
            ),
            precision=precision,
            sequence_length=sequence_length,
        )
