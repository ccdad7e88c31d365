"""Dynamic programs over the stages of all patterns at once, from the last stage to the first.

The state of a suffix of a worker is what devices it has of each kind, the kind of its first stage, and its first layer.
A suffix has one or more values, in which everything is monotone. Of all suffixes with the same state the least of each
value is kept, so that with a single value nothing is lost; with several the least ones may belong to different
suffixes, which is a relaxation.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.workers.rows.kinds import Counts, Lattice

CHUNK = 1_000_000
"""Numbers held at once while the suffixes of a level are extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The stages [start, stop) that a device of one kind may have, in the order of their starts."""

    start: Ints
    stop: Ints
    grown: Callable[[Floats], Floats]
    """Values of the suffixes with each stage in front, given those behind it with the boundary, both of shape
    (values, runs, patterns); infinite where a suffix may not be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The stages of a virtual worker in order."""

    kinds: tuple[int, ...]
    stops: tuple[int, ...]

    @property
    def starts(self) -> tuple[int, ...]:
        """First layer of each stage."""
        return (0, *self.stops[:-1])


class SuffixValues:
    """The least values of all suffixes.

    Parameters
    ----------
    runs
        Stages for each kind.
    links
        Added for each boundary between two kinds, shape (values, K, K, L + 1); infinite where it may not be.
    """

    def __init__(self, lattice: Lattice, runs: Sequence[Runs], links: Floats) -> None:
        self._lattice, self._runs, self._links = lattice, runs, links
        self._num_values, self._num_kinds, _, self._num_nodes = links.shape
        self._levels: list[Floats] = [np.empty((0, 0, 0, 0))]
        for num_stages in range(1, len(lattice.levels)):
            self._levels.append(self._level(num_stages))

    def whole(self) -> list[Floats]:
        """The last value of a whole worker for each pattern, one array for each number of stages."""
        return [
            np.full(1, np.inf) if number == 0 else level[-1, :, 0].min(axis=0)
            for number, level in enumerate(self._levels)
        ]

    def chain(self, pattern: Counts) -> Chain:
        """Stages with the least last value of a pattern, the first of several."""
        left, first, kinds, stops = list(pattern), 0, list[int](), list[int]()
        kind = int(self._levels[sum(left)][-1, :, 0, self._lattice.row(pattern)].argmin())
        while True:
            num_stages, runs = sum(left), self._runs[kind]
            left[kind] -= 1
            behind = self._behind(num_stages, kind, np.array([self._lattice.row(tuple(left))]))
            values = runs.grown(behind.min(axis=1)[:, runs.stop])[-1, :, 0]
            stop = int(runs.stop[np.where(runs.start == first, values, np.inf).argmin()])
            kinds.append(kind)
            stops.append(stop)
            if num_stages == 1:
                return Chain(kinds=tuple(kinds), stops=tuple(stops))
            kind, first = int(behind[-1, :, stop, 0].argmin()), stop

    def chains(self, pattern: Counts) -> Iterator[Chain]:
        """All stages of a pattern with finite values; also some without, as what a stage has behind it counts least."""
        for kinds, stops in self._suffixes(pattern, 0):
            yield Chain(kinds=kinds, stops=stops)

    def _suffixes(self, pattern: Counts, first: int) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Kinds and stops of the stages from a layer on."""
        num_stages, row = sum(pattern), self._lattice.row(pattern)
        for kind in np.flatnonzero(np.isfinite(self._levels[num_stages][-1, :, first, row])).tolist():
            left = tuple(count - (own == kind) for own, count in enumerate(pattern))
            behind = self._behind(num_stages, kind, np.array([self._lattice.row(left)])).min(axis=1)
            runs = self._runs[kind]
            may_be = np.isfinite(runs.grown(behind[:, runs.stop])[-1, :, 0]) & (runs.start == first)
            for stop in np.unique(runs.stop[may_be]).tolist():
                suffixes = self._suffixes(left, stop) if num_stages > 1 else iter([((), ())])
                yield from (((kind, *kinds), (stop, *stops)) for kinds, stops in suffixes)

    def _behind(self, num_stages: int, kind: int, rows: Ints) -> Floats:
        """Values behind a stage of a kind, boundary included, by the next kind, shape (values, K, L + 1, patterns)."""
        if num_stages == 1:
            end = np.where(np.arange(self._num_nodes) == self._num_nodes - 1, 0.0, np.inf)
            return np.broadcast_to(end[None, None, :, None], (self._num_values, 1, self._num_nodes, 1))
        behind: Floats = self._levels[num_stages - 1][..., rows] + self._links[:, kind, :, :, None]
        return behind

    def _level(self, num_stages: int) -> Floats:
        shape = self._num_values, self._num_kinds, self._num_nodes, len(self._lattice.levels[num_stages])
        values = np.full(shape, np.inf)
        for kind, runs in enumerate(self._runs):
            if not len(runs.start):
                continue
            rows, fewer = self._lattice.without(num_stages, kind)
            starts, first = np.unique(runs.start, return_index=True)
            step = max(1, CHUNK // (len(runs.start) * self._num_values))
            for at in range(0, len(rows), step):
                part = slice(at, at + step)
                behind = self._behind(num_stages, kind, fewer[part]).min(axis=1)
                least = np.minimum.reduceat(runs.grown(behind[:, runs.stop]), first, axis=1)
                values[:, kind, starts[:, None], rows[part]] = least
        return values
