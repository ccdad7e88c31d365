"""Layers shared by several devices, through torch's DTensor."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, distribute_tensor
from torch.distributed.tensor.parallel import parallelize_module

from models.module_chain import LayerModule
from planner.core.checks import require


def share_layer(module: nn.Module, layer: LayerModule, group: dist.ProcessGroup, device: torch.device) -> nn.Module:
    """Divide a layer's weights over the ranks of a group; every rank holds the whole layer before.

    Its inputs and outputs stay whole on each rank. A layer without a way to be divided is computed
    whole by all of them, as the cost model assumes.

    Raises
    ------
    BadInputError
        If the number of ranks does not divide the layer's heads or widths.
    """
    if layer.tensor_parallel is None:
        return module
    degree = group.size()
    if layer.divisible is not None:
        rule = f"a divisor of {layer.divisible}, its heads or width"
        require(layer.divisible % degree == 0, f"layer {layer.name!r}", "tensor parallelism", rule, degree)
    mesh = DeviceMesh.from_group(group, device.type)
    return parallelize_module(module, mesh, dict(layer.tensor_parallel()))


def local(tensor: Tensor) -> Tensor:
    """What this rank holds of a tensor."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; every rank that shares it takes part."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def divided_like(tensor: Tensor, like: Tensor) -> Tensor:
    """A whole tensor that every rank has, divided as another one is."""
    if not isinstance(like, DTensor):
        return tensor
    return distribute_tensor(tensor, like.device_mesh, like.placements, src_data_rank=None)


def is_divided(tensor: Tensor) -> bool:
    """Whether each rank holds a part of its own, so that parts add up to the whole."""
    return isinstance(tensor, DTensor) and any(not isinstance(place, Replicate) for place in tensor.placements)
