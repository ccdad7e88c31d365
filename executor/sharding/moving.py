"""Moves a tensor from one placement to another: the planner's steps as collectives along one axis each.

DTensor would do the same, except that over gloo it gathers where the planner has an all-to-all.
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import Step
from stagecut.planner.sharding.placements import AxisPlacement, Placements, Shard


def moved(tensor: Tensor, source: Placements, steps: Sequence[Step], place: MeshPlace) -> Tensor:
    """This rank's part of a tensor after some steps.

    Parameters
    ----------
    tensor
        Its part before them.
    source
        Placements before them.
    """
    for step in steps:
        tensor = _after(tensor, source[step.axis], step, place)
        source = (*source[: step.axis], step.to, *source[step.axis + 1 :])
    return tensor


def _after(tensor: Tensor, before: AxisPlacement, step: Step, place: MeshPlace) -> Tensor:
    group, size = place.groups[step.axis], place.sizes[step.axis]
    if step.collective is Collective.ALL_REDUCE:
        return all_reduce(tensor, group)
    if step.collective is Collective.ALL_GATHER:
        return all_gather(tensor, _dim(before), group)
    to = _dim(step.to)
    if step.collective is Collective.REDUCE_SCATTER:
        return reduce_scatter(tensor, to, group)
    if step.collective is Collective.ALL_TO_ALL:
        return all_to_all(tensor, split=to, joined=_dim(before), group=group)
    return tensor.chunk(size, to)[place.coordinate(step.axis)]


def _dim(placement: AxisPlacement) -> int:
    assert isinstance(placement, Shard)
    return placement.dim


def all_reduce(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of a group."""
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def all_gather(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The parts of all ranks, joined along a dimension."""
    parts = tensor.new_empty((group.size(), *tensor.shape))
    dist.all_gather_into_tensor(parts.flatten(0, 1) if tensor.dim() else parts, tensor.contiguous(), group=group)
    return _joined(parts, dim)


def reduce_scatter(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """This rank's part, along a dimension, of the sum over the ranks of a group."""
    parts = torch.stack(tensor.chunk(group.size(), dim))
    own = torch.empty_like(parts[0])
    dist.reduce_scatter_tensor(own, parts.flatten(0, 1), group=group)
    return own


def all_to_all(tensor: Tensor, *, split: int, joined: int, group: dist.ProcessGroup) -> Tensor:
    """From parts along `joined` to parts along `split`."""
    leaving = torch.stack(tensor.chunk(group.size(), split))
    coming = torch.empty_like(leaving)
    dist.all_to_all_single(coming, leaving, group=group)
    return _joined(coming, joined)


def _joined(parts: Tensor, dim: int) -> Tensor:
    return parts.flatten(0, 1) if dim == 0 else torch.cat(parts.unbind(), dim)
