"""The place of a rank in the mesh of its stage."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh

from stagecut.planner.sharding.mesh import Mesh


@dataclass(frozen=True, kw_only=True, eq=False)
class MeshPlace:
    """One rank in a mesh."""

    mesh: Mesh
    ranks: tuple[int, ...]
    """All ranks of the mesh, the last axis fastest."""
    index: int
    """Of this rank among them."""
    lines: tuple[tuple[int, ...], ...]
    """For each axis, the ranks that differ from this one in that coordinate only, in order."""
    groups: tuple[dist.ProcessGroup, ...]
    """Of these."""
    device: torch.device
    _device_meshes: dict[tuple[int, ...], DeviceMesh] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls,
        mesh: Mesh,
        ranks: Sequence[int],
        *,
        rank: int,
        groups: Mapping[tuple[int, ...], dist.ProcessGroup],
        device: torch.device,
    ) -> "MeshPlace":
        """The place of one of the ranks."""
        ranks = tuple(ranks)
        index = ranks.index(rank)
        lines = lines_of(ranks, mesh.sizes, index)
        own = tuple(groups[line] for line in lines)
        return cls(mesh=mesh, ranks=ranks, index=index, lines=lines, groups=own, device=device)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Ranks along each axis."""
        return self.mesh.sizes

    def coordinate(self, axis: int) -> int:
        """This rank's index along an axis."""
        return self.lines[axis].index(self.ranks[self.index])

    def device_mesh(self, order: tuple[int, ...]) -> DeviceMesh:
        """Torch's mesh of the same ranks, with the axes in another order."""
        if order not in self._device_meshes:
            grid = torch.tensor(self.ranks).view(self.sizes).permute(order)
            groups = [self.groups[axis] for axis in order]
            one = groups[0] if len(groups) == 1 else groups
            self._device_meshes[order] = DeviceMesh.from_group(one, self.device.type, mesh=grid)
        return self._device_meshes[order]


def lines_of(ranks: Sequence[int], sizes: Sequence[int], index: int) -> tuple[tuple[int, ...], ...]:
    """For each axis of a mesh, the ranks that differ from one of them in that coordinate only."""
    lines = []
    for axis, size in enumerate(sizes):
        stride = math.prod(sizes[axis + 1 :])
        first = index - index // stride % size * stride
        lines.append(tuple(ranks[first + step * stride] for step in range(size)))
    return tuple(lines)
