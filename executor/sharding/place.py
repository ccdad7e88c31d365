"""The place of a rank in the mesh of its stage."""

import math
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
    groups: tuple[dist.ProcessGroup, ...]
    """For each axis, the ranks that differ from this one in that coordinate only."""
    device: torch.device
    _device_meshes: dict[tuple[int, ...], DeviceMesh] = field(default_factory=dict, init=False, repr=False)

    @property
    def sizes(self) -> tuple[int, ...]:
        """Ranks along each axis."""
        return self.mesh.sizes

    def coordinate(self, axis: int) -> int:
        """The rank's index along an axis."""
        return self.index // math.prod(self.sizes[axis + 1 :]) % self.sizes[axis]

    def device_mesh(self, order: tuple[int, ...]) -> DeviceMesh:
        """Torch's mesh of the same ranks, with the axes in another order."""
        if order not in self._device_meshes:
            grid = torch.tensor(self.ranks).view(self.sizes).permute(order)
            groups = [self.groups[axis] for axis in order]
            one = groups[0] if len(groups) == 1 else groups
            names = tuple(f"axis{axis}" for axis in order)
            self._device_meshes[order] = DeviceMesh.from_group(one, self.device.type, mesh=grid, mesh_dim_names=names)
        return self._device_meshes[order]
