"""Arrays divided over an emulated mesh, and collectives on them that count what each device sends."""

import itertools

import numpy as np

from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Shard


def devices_of(sizes):
    """Coordinates of all devices, the last axis fastest."""
    return list(itertools.product(*(range(size) for size in sizes)))


def distribute(array, placements, sizes, random, *, order=None):
    """What each device holds: parts of parts of the array, or summands of it; axes divide it in this order."""
    held = {(None,) * len(sizes): array}
    for axis in range(len(sizes)) if order is None else order:
        held = {
            (*device[:axis], index, *device[axis + 1 :]): piece
            for device, whole in held.items()
            for index, piece in enumerate(_pieces(whole, placements[axis], sizes[axis], random))
        }
    return held


def _pieces(whole, own, size, random):
    if isinstance(own, Shard):
        return np.split(whole, size, axis=own.dim)
    if own is REPLICATE:
        return [whole] * size
    summands = [random.standard_normal(whole.shape) for _ in range(size - 1)]
    return [*summands, whole - sum(summands)]


def collect(held, placements, sizes, *, order=None):
    """The array of which each device holds a part; equal devices have to hold equal ones."""
    for axis in reversed(range(len(sizes)) if order is None else order):
        groups = {}
        for device in sorted(held, key=lambda device: device[axis]):
            groups.setdefault((*device[:axis], None, *device[axis + 1 :]), []).append(held[device])
        held = {group: _joined(pieces, placements[axis]) for group, pieces in groups.items()}
    return held[(None,) * len(sizes)]


def _joined(pieces, own):
    if isinstance(own, Shard):
        return np.concatenate(pieces, axis=own.dim)
    if own is PARTIAL:
        return sum(pieces)
    for piece in pieces[1:]:
        np.testing.assert_allclose(piece, pieces[0], rtol=1e-9, atol=1e-9)
    return pieces[0]


def apply_step(held, placements, step, sizes):
    """After a conversion's step: what each device holds, the placements, and how many elements each device sent."""
    own, size, after, sent = placements[step.axis], sizes[step.axis], {}, set()
    for device in held:
        if device[step.axis] == 0:
            group = [(*device[: step.axis], index, *device[step.axis + 1 :]) for index in range(size)]
            pieces, num_sent = _changed([held[member] for member in group], own, step)
            after.update(zip(group, pieces, strict=True))
            sent.add(num_sent)
    (num_sent,) = sent
    return after, (*placements[: step.axis], step.to, *placements[step.axis + 1 :]), num_sent


def _changed(pieces, own, step):
    size = len(pieces)
    if step.collective is Collective.ALL_GATHER:
        chunks, num_sent = ring_all_gather(pieces)
        return [np.concatenate(own_chunks, axis=own.dim) for own_chunks in chunks], num_sent
    if step.collective is Collective.ALL_TO_ALL:
        cut = [np.split(piece, size, axis=step.to.dim) for piece in pieces]
        num_sent = sum(chunk.size for chunk in cut[0][1:])
        return [np.concatenate([row[index] for row in cut], axis=own.dim) for index in range(size)], num_sent
    if step.collective is Collective.REDUCE_SCATTER:
        return ring_reduce_scatter([np.split(piece, size, axis=step.to.dim) for piece in pieces])
    if step.collective is Collective.ALL_REDUCE:
        sums, first = ring_reduce_scatter([np.split(piece.ravel(), size) for piece in pieces])
        chunks, second = ring_all_gather(sums)
        return [np.concatenate(own_chunks).reshape(pieces[0].shape) for own_chunks in chunks], first + second
    assert own is REPLICATE
    return [np.split(piece, size, axis=step.to.dim)[index] for index, piece in enumerate(pieces)], 0


def ring_reduce_scatter(chunks):
    """Sums of chunks: in step t, device i passes on its sum of chunk i - t - 1, and ends with that of chunk i."""
    size, sums, num_sent = len(chunks), [list(row) for row in chunks], 0
    for step in range(size - 1):
        passed = [(index, (index - step - 1) % size) for index in range(size)]
        messages = [sums[index][chunk] for index, chunk in passed]
        num_sent += messages[0].size
        for (index, chunk), message in zip(passed, messages, strict=True):
            sums[(index + 1) % size][chunk] = sums[(index + 1) % size][chunk] + message
    return [sums[index][index] for index in range(size)], num_sent


def ring_all_gather(pieces):
    """All pieces on every device: in step t, device i passes on piece i - t."""
    size, num_sent = len(pieces), 0
    held = [{index: piece} for index, piece in enumerate(pieces)]
    for step in range(size - 1):
        for index in range(size):
            chunk = (index - step) % size
            held[(index + 1) % size][chunk] = held[index][chunk]
        num_sent += pieces[0].size
    return [[own[index] for index in range(size)] for own in held], num_sent
