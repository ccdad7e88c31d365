"""From the placements that one operator leaves to those that the next needs: the cheapest sequence of collectives."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from itertools import count

from stagecut.planner.sharding.collectives import Collective, sent_bytes
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, AxisPlacement, Placements, Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A change along one axis."""

    axis: int
    to: AxisPlacement
    collective: Collective | None
    """None: a device takes a part of what it has."""
    num_bytes: float
    """Bytes of the larger of what a device has before and after."""

    def seconds(self, mesh: Mesh) -> float:
        """Seconds of the step."""
        return 0.0 if self.collective is None else mesh.axes[self.axis].seconds(self.collective, self.num_bytes)

    def sent_bytes(self, mesh: Mesh) -> float:
        """Bytes that each device sends."""
        if self.collective is None:
            return 0.0
        return sent_bytes(self.collective, mesh.sizes[self.axis], self.num_bytes)


def conversion(mesh: Mesh, source: Placements, target: Placements, *, num_bytes: float) -> tuple[Step, ...] | None:
    """The fastest way from one placement of a tensor to another, one axis at a time; None if there is none.

    | from | to | collective |
    |---|---|---|
    | Shard(i) | Shard(j) | all-to-all |
    | Shard | Replicate | all-gather |
    | Partial | Replicate | all-reduce |
    | Partial | Shard | reduce-scatter |
    | Replicate | Shard | none |

    Nothing becomes Partial. Where two axes divide one dimension, the later one in `Mesh.division_order` divides the
    parts of the earlier one, which may change to or from a shard of that dimension only while the later one does not
    shard it. Parts stay even: on the way, a dimension has a number of parts that divides the number at one of the ends.
    """
    return _conversion(mesh, source, target, num_bytes)


@lru_cache(maxsize=1 << 16)
def _conversion(mesh: Mesh, source: Placements, target: Placements, num_bytes: float) -> tuple[Step, ...] | None:
    """Dijkstra's algorithm over the placements."""
    order = count()
    heap: list[tuple[float, int, int, Placements, tuple[Step, ...]]] = [(0.0, 0, next(order), source, ())]
    done = set()
    while heap:
        seconds, _, _, placements, steps = heappop(heap)
        if placements == target:
            return steps
        if placements in done:
            continue
        done.add(placements)
        for step, after in steps_between(mesh, placements, (source, target), num_bytes=num_bytes):
            if after not in done:
                heappush(heap, (seconds + step.seconds(mesh), len(steps) + 1, next(order), after, (*steps, step)))
    return None


def steps_between(
    mesh: Mesh, placements: Placements, ends: tuple[Placements, Placements], *, num_bytes: float
) -> Iterator[tuple[Step, Placements]]:
    """The steps that may be taken from placements on the way between both ends, and where they lead."""
    parts_at_ends = tuple(_parts_by_dim(mesh, end) for end in ends)
    for step in _steps(mesh, placements, num_bytes, {*parts_at_ends[0], *parts_at_ends[1]}):
        after = (*placements[: step.axis], step.to, *placements[step.axis + 1 :])
        parts = _parts_by_dim(mesh, after)
        if all(any(end.get(dim, 1) % number == 0 for end in parts_at_ends) for dim, number in parts.items()):
            yield step, after


def _parts_by_dim(mesh: Mesh, placements: Placements) -> dict[int, int]:
    parts: dict[int, int] = {}
    for size, own in zip(mesh.sizes, placements, strict=True):
        if isinstance(own, Shard):
            parts[own.dim] = parts.get(own.dim, 1) * size
    return parts


def _steps(mesh: Mesh, placements: Placements, num_bytes: float, dims: set[int]) -> Iterator[Step]:
    local = num_bytes / mesh.parts(placements)
    order = mesh.division_order
    for position, axis in enumerate(order):
        own = placements[axis]
        later = (placements[other] for other in order[position + 1 :])
        inner = {place.dim for place in later if isinstance(place, Shard)}
        if isinstance(own, Shard) and own.dim in inner:
            continue
        shards = [Shard(dim) for dim in sorted(dims - inner) if Shard(dim) != own]
        if own is REPLICATE:
            yield from (Step(axis=axis, to=shard, collective=None, num_bytes=local) for shard in shards)
        elif own is PARTIAL:
            yield Step(axis=axis, to=REPLICATE, collective=Collective.ALL_REDUCE, num_bytes=local)
            for shard in shards:
                yield Step(axis=axis, to=shard, collective=Collective.REDUCE_SCATTER, num_bytes=local)
        else:
            whole = local * mesh.sizes[axis]
            yield Step(axis=axis, to=REPLICATE, collective=Collective.ALL_GATHER, num_bytes=whole)
            for shard in shards:
                yield Step(axis=axis, to=shard, collective=Collective.ALL_TO_ALL, num_bytes=local)
