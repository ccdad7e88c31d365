"""Seconds of the conversions between all placements of a tensor at once: those of single ones, as arrays."""

import itertools
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from stagecut.planner.core.cluster import UNLIMITED
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.sharding.collectives import Collective
from stagecut.planner.sharding.conversions import Step, steps_between
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, AxisPlacement, Placements, Shard

MAX_STEPS = 5
"""No cheapest conversion over two axes has more: a test compares them with the search."""

StepKind = tuple[int, Collective, float]
"""Axis, collective, and the larger of what a device has before and after as part of the tensor."""


@lru_cache(maxsize=64)
def all_placements(num_axes: int, num_dims: int) -> tuple[Placements, ...]:
    """All placements of a tensor with so many dimensions."""
    choices: list[AxisPlacement] = [REPLICATE, PARTIAL, *(Shard(dim) for dim in range(num_dims))]
    return tuple(itertools.product(choices, repeat=num_axes))


def number_of(placements: Placements, num_dims: int) -> int:
    """Index of placements in :func:`all_placements`."""
    number = 0
    for own in placements:
        number = number * (num_dims + 2) + (2 + own.dim if isinstance(own, Shard) else int(own is PARTIAL))
    return number


def conversion_seconds(mesh: Mesh, *, num_dims: int, num_bytes: float) -> Floats:
    """Seconds from each placement of a tensor of so many bytes to each; infinite where there is no way.

    What has no bytes takes no time: the input of the first layer is loaded where it is needed.

    The indices are those of :func:`all_placements`.
    """
    return _conversion_seconds(mesh, num_dims, num_bytes)


@lru_cache(maxsize=1 << 12)
def _conversion_seconds(mesh: Mesh, num_dims: int, num_bytes: float) -> Floats:
    ways = _ways(mesh.sizes, num_dims)
    kinds_s = np.array([mesh.axes[axis].seconds(collective, part * num_bytes) for axis, collective, part in ways.kinds])
    seconds = np.append(ways.counts @ kinds_s if num_bytes > 0 else np.zeros(len(ways.counts)), np.inf)
    least: Floats = np.minimum.reduceat(seconds, ways.begins)[ways.numbers]
    return least


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ways:
    """The ways from placements to placements on meshes of one shape."""

    kinds: tuple[StepKind, ...]
    counts: Floats
    """How many steps of each kind a way has, shape (ways, kinds)."""
    begins: tuple[int, ...]
    """Index of the first way of each distinct pair; the last pair has none, which stands for an infinite one."""
    numbers: "np.ndarray[tuple[int, int], np.dtype[np.int64]]"
    """Distinct pair of each placement and each other."""


@lru_cache(maxsize=256)
def _ways(sizes: tuple[int, ...], num_dims: int) -> _Ways:
    placements = all_placements(len(sizes), num_dims)
    pairs = {pair: _renamed(*pair) for pair in itertools.product(placements, repeat=2)}
    ways_of = {pair: _ways_between(sizes, *pair) for pair in dict.fromkeys(pairs.values())}
    distinct = [pair for pair, ways in ways_of.items() if ways]
    kinds = tuple(sorted({kind for ways in ways_of.values() for way in ways for kind in way}))
    rows = [[way.count(kind) for kind in kinds] for pair in distinct for way in ways_of[pair]]
    lengths = [len(ways_of[pair]) for pair in distinct]
    number = {pair: index for index, pair in enumerate(distinct)}
    numbers = [number.get(renamed, len(distinct)) for renamed in pairs.values()]
    return _Ways(
        kinds=kinds,
        counts=np.array(rows, dtype=float).reshape(len(rows), len(kinds)),
        begins=(0, *itertools.accumulate(lengths)),
        numbers=np.array(numbers).reshape(len(placements), len(placements)),
    )


def _renamed(source: Placements, target: Placements) -> tuple[Placements, Placements]:
    """The same pair with its dimensions numbered as they come: what they are called does not matter."""
    names: dict[int, int] = {}

    def renamed(own: AxisPlacement) -> AxisPlacement:
        return Shard(names.setdefault(own.dim, len(names))) if isinstance(own, Shard) else own

    return tuple(map(renamed, source)), tuple(map(renamed, target))


@lru_cache(maxsize=1 << 14)
def _ways_between(sizes: tuple[int, ...], source: Placements, target: Placements) -> tuple[tuple[StepKind, ...], ...]:
    """The collectives of every way of few steps that visits no placements twice, without repetitions."""
    mesh = Mesh(axes=tuple(MeshAxis(size=size, link=UNLIMITED) for size in sizes))
    found: dict[tuple[StepKind, ...], None] = {}

    def walk(visited: tuple[Placements, ...], kinds: tuple[StepKind, ...]) -> None:
        if visited[-1] == target:
            found[tuple(sorted(kinds))] = None
            return
        for step, after in steps_between(mesh, visited[-1], (source, target), num_bytes=1.0):
            to_change = sum(own != wanted for own, wanted in zip(after, target, strict=True))
            if after not in visited and len(visited) + to_change <= MAX_STEPS:
                walk((*visited, after), kinds + _kind(step))

    walk((source,), ())
    return tuple(found)


def _kind(step: Step) -> tuple[StepKind, ...]:
    return () if step.collective is None else ((step.axis, step.collective, step.num_bytes),)
