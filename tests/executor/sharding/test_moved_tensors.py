"""Every conversion between two placements gives the tensor, and sends what the planner counts."""

import itertools

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.sharding.moving import moved
from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.sharding.conversion_tables import all_placements
from stagecut.planner.sharding.conversions import conversion
from stagecut.planner.sharding.placements import PARTIAL, Placements, Shard
from tests.executor import pool
from tests.executor.sharding.sent_bytes import Sent
from tests.executor.sharding.sharded_models import mesh_of

WORLD_SIZE = 4
SHAPE = (4, 8, 12)
"""Four devices divide every dimension, over one axis or over two."""
SHARES = {2: (-2.0, 3.0), 4: (1.0, -2.0, 4.0, -2.0)}
"""Of the tensor in its partial sums on an axis of so many devices; they add up to one."""
Ends = tuple[Placements, Placements]


def moves(sizes: tuple[int, ...]) -> list[tuple[Ends, float, float]]:
    """For every pair of placements with a way, the largest error of a part, and bytes sent but not counted."""
    place = _place(sizes)
    tensor = torch.randn(SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64).to(place.device)
    found = []
    for source, target in _pairs(sizes):
        steps = conversion(place.mesh, source, target, num_bytes=float(tensor.numel() * tensor.element_size()))
        if steps is not None:
            part, wanted = _part(tensor, source, place), _part(tensor, target, place)
            with Sent() as sent:
                result = moved(part, source, steps, place)
            assert result.shape == wanted.shape, (source, target)
            counted = sum(step.sent_bytes(place.mesh) for step in steps)
            found.append(((source, target), float((result - wanted).abs().max()), sent.num_bytes - counted))
    return found


def _pairs(sizes: tuple[int, ...]):
    return itertools.product(all_placements(len(sizes), len(SHAPE)), repeat=2)


def _place(sizes: tuple[int, ...]) -> MeshPlace:
    rank, grid = dist.get_rank(), torch.arange(WORLD_SIZE).view(sizes)
    groups = []
    for axis in range(len(sizes)):
        lines = grid.movedim(axis, -1).reshape(-1, sizes[axis]).tolist()
        own = [(line, dist.new_group(line)) for line in lines]  # all ranks make all groups
        groups.append(next(group for line, group in own if rank in line))
    return MeshPlace(
        mesh=mesh_of(sizes),
        ranks=tuple(range(WORLD_SIZE)),
        index=rank,
        groups=tuple(groups),
        device=pool.device(),
    )


def _part(tensor: Tensor, placements: Placements, place: MeshPlace) -> Tensor:
    """What this rank has of the tensor."""
    for axis, own in enumerate(placements):
        size, coordinate = place.sizes[axis], place.coordinate(axis)
        if own is PARTIAL:
            tensor = tensor * SHARES[size][coordinate]
        elif isinstance(own, Shard):
            tensor = tensor.chunk(size, own.dim)[coordinate]
    return tensor


def played(meshes: list[tuple[int, ...]]) -> list[list[tuple[Ends, float, float]]]:
    """The moves on several meshes of the same ranks."""
    return [moves(sizes) for sizes in meshes]


def test_every_conversion_gives_the_tensor_and_sends_what_is_counted() -> None:
    """Between all placements of a tensor of three dimensions, on one axis and on two; but nothing becomes partial."""
    for found in pool.run(played, [(4,), (2, 2)], world_size=WORLD_SIZE):
        # 5 placements on an axis: from R and S to all but P, which are 4 x 4 pairs, and from P to all 5.
        assert len(found[0]) == 21
        # An axis where the target is partial has to be partial before: 21^2 pairs of pairs.
        assert len(found[1]) == 21**2
        for ends, error, uncounted in itertools.chain(*found):
            assert error < 1e-12, ends
            assert uncounted == pytest.approx(0.0), ends
