"""Rows of tokens for experts: tensors of dimensions (sample, token, expert, ...) that hold only what was chosen.

Such a tensor is a bundle of three on each rank: the rows, shape (rows, last dimension); their keys, the index of each
in (sample, token, expert) of the whole mesh, increasing; and the sizes (samples, tokens, experts, experts per token).
"""

import math

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.sharding import moving
from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, AxisPlacement, Placements, Shard

LAST = 3
"""The dimension that every row has whole unless it is divided itself."""


def moved_rows(
    rows: Tensor, keys: Tensor, sizes: Tensor, ends: tuple[Placements, Placements], place: MeshPlace
) -> tuple[Tensor, Tensor]:
    """The rank's rows, and their keys, in other placements."""
    space, (source, target) = sizes.tolist(), ends
    samples, tokens, _, chosen = space
    columns = rows.shape[1] * math.prod(s for s, own in zip(place.sizes, source, strict=True) if own == Shard(LAST))
    # all ranks must choose the same way, however many rows each of them has
    steps = conversion(
        place.mesh, source, target, num_bytes=float(samples * tokens * chosen * columns * rows.element_size())
    )
    assert steps is not None
    for step in steps:
        axis, after = step.axis, (*source[: step.axis], step.to, *source[step.axis + 1 :])
        if _turns(source[axis], step.to):
            rows, keys = _whole(rows, keys, source[axis], place.groups[axis])
            source = (*source[:axis], REPLICATE, *source[axis + 1 :])
        if step.to is REPLICATE:
            rows, keys = _whole(rows, keys, source[axis], place.groups[axis])
        elif step.to == Shard(LAST):
            rows = _own_columns(rows, source[axis], axis, place)
        else:
            owners = _owners(keys, after, axis, place, space)
            rows, keys = _own_rows(rows, keys, owners, source[axis], axis, place=place)
        source = after
    return rows, keys


def _turns(before: AxisPlacement, to: AxisPlacement) -> bool:
    """Whether columns become rows or rows columns, which happens by way of whole tensors."""
    return isinstance(before, Shard) and isinstance(to, Shard) and LAST in (before.dim, to.dim)


def _whole(rows: Tensor, keys: Tensor, before: AxisPlacement, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    if before is PARTIAL:
        return moving.all_reduce(rows, group), keys
    if before == Shard(LAST):
        return moving.all_gather(rows, 1, group), keys
    return _gathered(rows, keys, group)


def _own_columns(rows: Tensor, before: AxisPlacement, axis: int, place: MeshPlace) -> Tensor:
    if before is PARTIAL:
        return moving.reduce_scatter(rows, 1, place.groups[axis])
    return rows.chunk(place.sizes[axis], 1)[place.coordinate(axis)]


def _own_rows(
    rows: Tensor, keys: Tensor, owners: Tensor, before: AxisPlacement, axis: int, *, place: MeshPlace
) -> tuple[Tensor, Tensor]:
    if before is PARTIAL:
        return _scattered(rows, keys, owners, place.coordinate(axis), place.groups[axis])
    if isinstance(before, Shard):
        return _exchanged(rows, keys, owners, place.groups[axis])
    own = owners == place.coordinate(axis)
    return rows[own], keys[own]


def _owners(keys: Tensor, after: Placements, axis: int, place: MeshPlace, space: list[int]) -> Tensor:
    """Coordinate along an axis of the rank that has each row."""
    own = after[axis]
    assert isinstance(own, Shard)
    samples, tokens, experts, _ = space
    index = (keys // (tokens * experts), keys // experts % tokens, keys % experts)[own.dim]
    size = (samples, tokens, experts)[own.dim]
    parts = math.prod(place.sizes[each] for each in range(axis + 1) if after[each] == own)
    return index // (size // parts) % place.sizes[axis]


def _scattered(rows: Tensor, keys: Tensor, owners: Tensor, own: int, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Of summands of the same rows on all ranks, the sums of one's own rows: parts are filled up to the largest."""
    parts = [rows[owners == rank] for rank in range(group.size())]
    largest = max(len(part) for part in parts)
    filled = [torch.cat((part, part.new_zeros(largest - len(part), part.shape[1]))) for part in parts]
    total = moving.reduce_scatter(torch.cat(filled), 0, group) if largest else rows
    return total[: len(parts[own])], keys[owners == own]


def _gathered(rows: Tensor, keys: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """The rows of all ranks: everyone's go to everyone."""
    every = torch.arange(group.size(), device=keys.device).repeat_interleave(len(keys))
    return _exchanged(rows.repeat(group.size(), 1), keys.repeat(group.size()), every, group)


def _exchanged(rows: Tensor, keys: Tensor, owners: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Send each row to its owner."""
    order = owners.argsort(stable=True)
    leaving = torch.bincount(owners, minlength=group.size())
    coming = torch.empty_like(leaving)
    dist.all_to_all_single(coming, leaving, group=group)
    counts = coming.tolist(), leaving.tolist()
    own_keys = keys.new_empty(sum(counts[0]))
    own_rows = rows.new_empty(sum(counts[0]), rows.shape[1])
    dist.all_to_all_single(own_keys, keys[order], *counts, group=group)
    dist.all_to_all_single(own_rows, rows[order].contiguous(), *counts, group=group)
    increasing = own_keys.argsort()
    return own_rows[increasing], own_keys[increasing]
