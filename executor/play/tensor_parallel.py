"""Tensor parallelism through torch's DTensor.

DTensor is imported only when needed, because that takes more than a second.
"""

from math import prod
from typing import Any, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor, nn

from stagecut.models.modules.module_chain import LayerModule
from stagecut.planner.core.messages.checks import require


def share_layer(module: nn.Module, layer: LayerModule, group: dist.ProcessGroup, device: torch.device) -> nn.Module:
    """Shard a layer's weights over the ranks of a group, each of which holds the whole layer before.

    Inputs and outputs stay whole on each rank. A layer that does not support tensor parallelism is replicated, as the
    cost model assumes.

    Raises
    ------
    BadInputError
        If the number of ranks does not divide the layer's heads or width.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor.parallel import parallelize_module

    if layer.tensor_parallel is None:
        return module
    degree = group.size()
    if layer.divisible is not None:
        rule = f"a divisor of {layer.divisible}, its heads or width"
        require(layer.divisible % degree == 0, f"layer {layer.name!r}", "tensor parallelism", rule, degree)
    mesh = DeviceMesh.from_group(group, device.type)
    return parallelize_module(module, mesh, dict(layer.tensor_parallel()))


def is_shared(tensor: Tensor) -> TypeGuard[Any]:
    """Whether it is a DTensor."""
    return hasattr(tensor, "to_local")


def is_divided(tensor: Tensor) -> bool:
    """Whether it is a sharded DTensor, of which each rank holds a different part."""
    return is_shared(tensor) and any(not place.is_replicate() for place in tensor.placements)


def num_parts(tensor: Tensor) -> int:
    """Into how many parts it is divided."""
    if not is_shared(tensor):
        return 1
    return prod(
        size for size, place in zip(tensor.device_mesh.shape, tensor.placements, strict=True) if place.is_shard()
    )


def local(tensor: Tensor) -> Tensor:
    """The part of a tensor on this rank."""
    part: Tensor = tensor.to_local() if is_shared(tensor) else tensor
    return part


def whole(tensor: Tensor) -> Tensor:
    """The whole tensor; a collective of the tensor-parallel group."""
    full: Tensor = tensor.full_tensor() if is_shared(tensor) else tensor
    return full


def divided_like(tensor: Tensor, like: Tensor) -> Tensor:
    """Shard a tensor that every rank has whole in the same way as another one."""
    if not is_shared(like):
        return tensor
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)
