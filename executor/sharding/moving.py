"""Moves a tensor from one placement to another: the planner's steps as collectives along one axis each.

DTensor would do the same, except that over gloo it gathers where the planner has an all-to-all.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import Step
from stagecut.planner.sharding.placements import AxisPlacement, Placements, Shard

# torch 2.13 renames them
_all_gather: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


def moved(tensor: Tensor, source: Placements, steps: Sequence[Step], place: MeshPlace) -> Tensor:
    """The rank's part of a tensor after some steps.

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
    return parts_of(tensor, size, to)[place.coordinate(step.axis)]


def _dim(placement: AxisPlacement) -> int:
    assert isinstance(placement, Shard)
    return placement.dim


def parts_of(tensor: Tensor, num_parts: int, dim: int) -> tuple[Tensor, ...]:
    """Equal parts along a dimension.

    Only logits may be uneven: they are filled up with impossible ones, which no loss sees.
    """
    missing = -tensor.shape[dim] % num_parts
    if missing:
        tensor = functional.pad(tensor, (*(0, 0) * (tensor.dim() - 1 - dim), 0, missing), value=-float("inf"))
    return tensor.chunk(num_parts, dim)


def all_reduce(tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over the ranks of a group."""
    total = tensor.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def all_gather(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The parts of all ranks, joined along a dimension."""
    parts = tensor.new_empty((group.size(), *tensor.shape))
    _all_gather(parts.flatten(0, 1) if tensor.dim() else parts, tensor.contiguous(), group=group)
    return _joined(parts, dim)


def reduce_scatter(tensor: Tensor, dim: int, group: dist.ProcessGroup) -> Tensor:
    """The rank's part, along a dimension, of the sum over the ranks of a group."""
    parts = torch.stack(parts_of(tensor, group.size(), dim))
    own = torch.empty_like(parts[0])
    _reduce_scatter(own, parts.flatten(0, 1), group=group)
    return own


def all_to_all(tensor: Tensor, *, split: int, joined: int, group: dist.ProcessGroup) -> Tensor:
    """From parts along `joined` to parts along `split`."""
    leaving = torch.stack(parts_of(tensor, group.size(), split))
    coming = torch.empty_like(leaving)
    dist.all_to_all_single(coming, leaving, group=group)
    return _joined(coming, joined)


def _joined(parts: Tensor, dim: int) -> Tensor:
    return parts.flatten(0, 1) if dim == 0 else torch.cat(parts.unbind(), dim)
