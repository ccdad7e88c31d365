"""Dynamic programs over the stages of all patterns at once, from the last stage to the first.

The state of a suffix of a worker is what devices it has of each kind, the kind of its first stage, and its first layer.
Of all suffixes with the same state one is kept whose value V is least; everything else is monotone in V, so that
nothing is lost:

    V(u, k, i) = least over j and k' of  max(floor_k[i, j], add_k[i, j] + link_{k, k'}[j] + V(u - e_k, k', j))
                 among those with that value + slack_k[i, j] <= 0

where floor, add and slack also depend on the number of stages in u.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.tolerances import PATH_SUM
from stagecut.planner.workers.kinds import Counts, Lattice

CHUNK = 2_000_000
"""Numbers held at once while the suffixes of a level are extended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a stage [i, j) of one kind adds, each of shape (L + 1, L + 1); add is infinite where there is no stage."""

    add: Floats
    floor: Floats | None = None
    slack: Floats | None = None


TermsOf = Callable[[int, int], Terms]
"""By kind and number of stages from this one to the last."""


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
    links
        Added for each boundary between two kinds, shape (K, K, L + 1); infinite where it may not be.
    """

    def __init__(self, lattice: Lattice, terms: TermsOf, links: Floats) -> None:
        self._lattice, self._terms, self._links = lattice, terms, links
        self._num_kinds, self._num_nodes = links.shape[0], links.shape[2]
        self._levels: list[Floats] = [np.empty((0, 0, 0))]
        for num_stages in range(1, len(lattice.levels)):
            self._levels.append(self._level(num_stages))

    def whole(self) -> list[Floats]:
        """The least value of a whole worker for each pattern, one array for each number of stages."""
        return [
            np.full(1, np.inf) if number == 0 else level[:, :, 0].min(axis=1)
            for number, level in enumerate(self._levels)
        ]

    def chain(self, pattern: Counts) -> Chain:
        """Stages with the least value of a pattern, the first of several."""
        left, first, kinds, stops = list(pattern), 0, list[int](), list[int]()
        options = self._levels[sum(left)][self._lattice.row(pattern), :, 0]
        kind = int(options.argmin())
        while True:
            num_stages = sum(left)
            left[kind] -= 1
            behind = self._behind(num_stages, kind, left)
            values = _extended(self._terms(kind, num_stages), behind.min(axis=0)[None], rows=slice(first, first + 1))
            stop = int(values[0, 0].argmin())
            kinds.append(kind)
            stops.append(stop)
            if num_stages == 1:
                return Chain(kinds=tuple(kinds), stops=tuple(stops))
            kind, first = int(behind[:, stop].argmin()), stop

    def _behind(self, num_stages: int, kind: int, left: Sequence[int]) -> Floats:
        """Values behind a stage of a kind, boundary included, by the next kind, shape (K, L + 1)."""
        if num_stages == 1:
            return self._end()[None]
        row = self._lattice.row(tuple(left))
        behind: Floats = self._levels[num_stages - 1][row] + self._links[kind]
        return behind

    def _end(self) -> Floats:
        return np.where(np.arange(self._num_nodes) == self._num_nodes - 1, 0.0, np.inf)

    def _level(self, num_stages: int) -> Floats:
        values = np.full((len(self._lattice.levels[num_stages]), self._num_kinds, self._num_nodes), np.inf)
        for kind in range(self._num_kinds):
            rows, fewer = self._lattice.without(num_stages, kind)
            terms = self._terms(kind, num_stages)
            step = max(1, CHUNK // self._num_nodes**2)
            for at in range(0, len(rows), step):
                part = slice(at, at + step)
                if num_stages == 1:
                    behind = self._end()[None]
                else:
                    behind = (self._levels[num_stages - 1][fewer[part]] + self._links[kind]).min(axis=1)
                values[rows[part], kind] = _extended(terms, behind).min(axis=2)
        return values


def _extended(terms: Terms, behind: Floats, *, rows: slice = slice(None)) -> Floats:
    """Values of suffixes that begin with a stage [i, j), by pattern, i in `rows`, and j."""
    values = terms.add[rows] + behind[:, None, :]
    if terms.floor is not None:
        values = np.maximum(values, terms.floor[rows])
    if terms.slack is not None:
        values = np.where(values + terms.slack[rows] <= PATH_SUM * np.abs(terms.slack[rows]), values, np.inf)
    return values
