"""Tensor-parallel styles of layers: by heads, width or vocabulary (Shoeybi et al., arXiv 1909.08053).

Layers take and return whole tensors. The input of a part is announced once, so that the gradients which its
products send back are summed before they are all-reduced, once.
"""

from collections.abc import Mapping
from typing import Any, cast

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module, distribute_tensor
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


def experts_styles() -> Styles:
    """Each device has a shard of every expert; the router is replicated."""
    return {"inner.experts": _SharedExperts()}


class _SharedExperts(ParallelStyle):
    """Columns of `gate` and `up`, rows of `down`, each with a leading dimension of experts."""

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        whole, summed = cast(Any, self._whole), cast(Any, self._summed)  # annotated without results in torch
        return distribute_module(module, device_mesh, self._divide, whole, summed)

    @staticmethod
    def _divide(_: str, module: nn.Module, mesh: DeviceMesh) -> None:
        for name, parameter in list(module.named_parameters(recurse=False)):
            place = Shard(2 if name == "down" else 1)
            shared = distribute_tensor(parameter.detach(), mesh, [place])
            module.register_parameter(name, nn.Parameter(shared, requires_grad=parameter.requires_grad))

    @staticmethod
    def _whole(_: nn.Module, inputs: tuple[Any, ...], mesh: DeviceMesh) -> tuple[Any, ...]:
        return ([DTensor.from_local(given, mesh, [Replicate()], run_check=False) for given in inputs[0]],)

    @staticmethod
    def _summed(_: nn.Module, output: Any, __: DeviceMesh) -> list[Tensor]:
        return [result.redistribute(placements=[Replicate()]).to_local() for result in output]


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
