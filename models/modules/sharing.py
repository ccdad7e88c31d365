"""Tensor-parallel styles of layers: by heads, width or vocabulary (Shoeybi et al., arXiv 1909.08053).

Layers take and return whole tensors. The input of a part is announced once, so that the gradients which its
products send back are summed before they are all-reduced, once.
"""

from collections.abc import Mapping

from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
)

Styles = Mapping[str, ParallelStyle]
"""Parallel styles by submodule name."""


def attention_styles() -> Styles:
    """Each device has some heads."""
    return {
        "inner": _whole_input(),
        "inner.query": ColwiseParallel(),
        "inner.key": ColwiseParallel(),
        "inner.value": ColwiseParallel(),
        "inner.project": RowwiseParallel(),
    }


def feed_forward_styles(*columns: str) -> Styles:
    """Each device has a part of the width; `columns` are the linear layers into it."""
    return {"inner": _whole_input(), **_gated("inner", *columns)}


def experts_styles(num_experts: int) -> Styles:
    """Each device has a shard of every expert; the router is replicated."""
    styles: dict[str, ParallelStyle] = {}
    for index in range(num_experts):
        expert = f"inner.experts.{index}"
        styles |= {expert: _whole_input(), **_gated(expert, "gate", "up")}
    return styles


def embedding_styles() -> Styles:
    """Each device looks up some tokens of the vocabulary."""
    return {"tokens": RowwiseParallel(input_layouts=Replicate())}


def head_styles(*products: str) -> Styles:
    """Each device has some outputs of every linear layer, gathered after it."""
    return {product: ColwiseParallel(output_layouts=Replicate()) for product in products}


def _gated(inner: str, *columns: str) -> dict[str, ParallelStyle]:
    into = {f"{inner}.{column}": ColwiseParallel() for column in columns}
    return {**into, f"{inner}.down": RowwiseParallel()}


def _whole_input() -> ParallelStyle:
    return PrepareModuleInput(input_layouts=(Replicate(),), desired_input_layouts=(Replicate(),))
