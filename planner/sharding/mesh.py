"""Devices in a grid, and the link that each axis runs on."""

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stagecut.planner.core.cluster import AllReduceTable, Link
from stagecut.planner.core.messages.checks import require, require_count
from stagecut.planner.sharding.collectives import Collective, ring_steps
from stagecut.planner.sharding.placements import Placements, Shard

MAX_AXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshAxis:
    """One axis of a mesh: groups of devices that differ in this coordinate only."""

    size: int
    link: Link
    """Between neighbours of a ring along the axis, while all rings of the axis are in use."""
    all_reduce: AllReduceTable | None = None
    """Measured all-reduces along the axis."""
    between_hosts: bool = False
    """Whether its groups have one device on each of several hosts; otherwise they are inside hosts."""

    def __post_init__(self) -> None:
        require_count("mesh axis", "size", self.size)

    def seconds(self, collective: Collective, num_bytes: float) -> float:
        """Seconds of a collective on tensors of so many bytes: the larger of what each device has before and after.

        Rings as in Thakur et al., IJHPCA 2005: p - 1 steps of bytes / p, twice that for an all-reduce. Where
        all-reduces were measured, the two halves of one take half its time each.
        """
        steps = ring_steps(collective, self.size)
        if self.all_reduce is not None and collective in _HALVES:
            return _HALVES[collective] * float(self.all_reduce.seconds(np.array(num_bytes)))
        return steps * self.link.transfer_s(num_bytes / self.size)


_HALVES = {Collective.ALL_REDUCE: 1.0, Collective.ALL_GATHER: 0.5, Collective.REDUCE_SCATTER: 0.5}


@dataclass(frozen=True, kw_only=True)
class Mesh:
    """A grid of devices, the last axis fastest."""

    axes: tuple[MeshAxis, ...]

    def __post_init__(self) -> None:
        require(len(self.axes) <= MAX_AXES, "mesh", "axes", f"at most {MAX_AXES}", len(self.axes))

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """Devices along each axis."""
        return tuple(axis.size for axis in self.axes)

    @cached_property
    def division_order(self) -> tuple[int, ...]:
        """Axes in the order in which they divide a dimension in common: inside hosts first, so that others see less."""
        return tuple(sorted(range(len(self.axes)), key=lambda axis: self.axes[axis].between_hosts))

    @property
    def num_devices(self) -> int:
        """Devices of the mesh."""
        return math.prod(self.sizes)

    def parts(self, placements: Placements) -> int:
        """Into how many parts a tensor is divided."""
        return math.prod(size for size, own in zip(self.sizes, placements, strict=True) if isinstance(own, Shard))
