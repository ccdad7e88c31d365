"""Rows of tokens for experts: tensors of dimensions (sample, token, expert, ...) that hold only what was chosen.

Such a tensor is a bundle of three on each rank: the rows, shape (rows, last dimension); their keys, the index of each
in (sample, token, expert) of the whole mesh, increasing; and the sizes (samples, tokens, experts, experts per token).
"""

import math
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.sharding import moving
from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.sharding.conversions import Step, conversion
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, AxisPlacement, Placements, Shard

LAST = 3
"""The dimension that every row has whole unless it is divided itself."""


Bundle = tuple[Tensor, Tensor, Tensor]
"""Rows, keys and sizes."""


def steps_of_rows(bundle: Bundle, ends: tuple[Placements, Placements], place: MeshPlace) -> tuple[Step, ...]:
    """The planner's steps between two placements, the same on all ranks, however many rows each of them has."""
    rows, _, sizes = bundle
    samples, tokens, _, chosen = sizes.tolist()
    divided = (size for size, own in zip(place.sizes, ends[0], strict=True) if own == Shard(LAST))
    num_elements = samples * tokens * chosen * rows.shape[1] * math.prod(divided)
    steps = conversion(place.mesh, *ends, num_bytes=float(num_elements * rows.element_size()))
    assert steps is not None
    return steps


def moved_rows(bundle: Bundle, source: Placements, steps: Sequence[Step], place: MeshPlace) -> Bundle:
    """The rank's rows, and their keys, after some steps from the placements `source`."""
    rows, keys, sizes = bundle
    for step in steps:
        axis, after = step.axis, (*source[: step.axis], step.to, *source[step.axis + 1 :])
        if step.to is REPLICATE:
            rows, keys = _whole(rows, keys, source[axis], place.groups[axis])
        elif step.to == Shard(LAST):
            rows, keys = _own_columns(rows, keys, source[axis], axis, place)
        else:
            owners = _owners(keys, after, axis, place, sizes.tolist())
            rows, keys = _own_rows(rows, keys, owners, source[axis], axis, place=place)
        source = after
    return rows, keys, sizes


def _whole(rows: Tensor, keys: Tensor, before: AxisPlacement, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    if before is PARTIAL:
        return moving.all_reduce(rows, group), keys
    if before == Shard(LAST):
        return moving.all_gather(rows, 1, group), keys
    return _to_everyone(rows.repeat(group.size(), 1), keys, group)


def _own_columns(
    rows: Tensor, keys: Tensor, before: AxisPlacement, axis: int, place: MeshPlace
) -> tuple[Tensor, Tensor]:
    size, group = place.sizes[axis], place.groups[axis]
    if before is PARTIAL:
        return moving.reduce_scatter(rows, 1, group), keys
    if isinstance(before, Shard):
        return _to_everyone(torch.cat(rows.chunk(size, 1)), keys, group)
    return rows.chunk(size, 1)[place.coordinate(axis)], keys


def _own_rows(
    rows: Tensor, keys: Tensor, owners: Tensor, before: AxisPlacement, axis: int, *, place: MeshPlace
) -> tuple[Tensor, Tensor]:
    if before is PARTIAL:
        return _scattered(rows, keys, owners, place.coordinate(axis), place.groups[axis])
    if before == Shard(LAST):
        return _joined(rows, keys, owners, place.coordinate(axis), place.groups[axis])
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


def _joined(columns: Tensor, keys: Tensor, owners: Tensor, own: int, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """From some columns of all rows, the keys of which every rank has, to all columns of one's own rows."""
    leaving = torch.bincount(owners, minlength=group.size())
    own_keys = keys[owners == own]
    coming = columns.new_empty(group.size(), len(own_keys), columns.shape[1])
    dist.all_to_all_single(
        coming.flatten(0, 1),
        columns[owners.argsort(stable=True)].contiguous(),
        [len(own_keys)] * group.size(),
        leaving.tolist(),
        group=group,
    )
    return torch.cat(coming.unbind(), 1), own_keys


def _to_everyone(leaving: Tensor, keys: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Send rows with these keys to every rank, first to the first one."""
    every = torch.arange(group.size(), device=keys.device).repeat_interleave(len(keys))
    return _exchanged(leaving, keys.repeat(group.size()), every, group)


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
