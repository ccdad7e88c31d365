"""Cuts of interleaved shapes improved by simulation, as long as there is time: an iterated local search.

Lourenço, Martin and Stützle, Iterated Local Search (2003): from the best cut of a shape go a few random moves away and
downhill from there; the end replaces the best cut where it is faster. Rows see little of messages that wait for each
other at links, and several chunks on each device send many, so that rows alone end at plans 1 to 3 % slower.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.heuristic.interleaved_cuts import Cuts, near
from stagecut.planner.solvers.heuristic.local_search import BATCH, BATCH_ACTIONS, LEAST_GAIN, PATIENCE
from stagecut.planner.solvers.search.search import Search

WORTH_A_DESCENT = 1.1
"""Cuts go downhill that are slower than the best plan by no more than this: on commodity-32 some that begin 5 and 6 %
above it for bert-large end 3 to 4 % below, and two 9 % above for gpt2-1.3b end 2 to 3 % above."""
NUM_KICKS, WORTH_A_KICK = 4, 1.03
"""Random moves away from the best cut of a shape; shapes whose best cut is slower than the best plan by more than this
wait."""
AT_ONCE = 8
"""Times that a search in a hurry goes away from the fastest cut."""


@dataclass(slots=True)
class _Track:
    """A shape and its fastest cut so far."""

    cuts: Cuts
    stops: Ints
    """Shape (S,)."""
    seconds: float


class InterleavedPolish:
    """The shapes to look at, from the cuts given, with their simulated times."""

    def __init__(self, starts: Iterable[tuple[Cuts, Ints, float]], seed: int) -> None:
        self._tracks = [_Track(*start) for start in starts]
        self._random = np.random.default_rng(seed)

    def pieces(self, search: Search) -> Iterator[None]:
        """Improve the cuts in turn, a few batches of neighbours in a piece, and offer what that finds; has no end."""
        while True:
            within_s = 0.0 if search.out_of_budget else WORTH_A_KICK * search.best_s
            near_best = [track for track in self._tracks if track.seconds <= within_s]
            for track in near_best:
                yield from self._go_on(search, track)
            if not near_best:
                yield

    def improve(self, search: Search) -> None:
        """Go downhill from every cut at once, and away from the fastest a few times."""
        for track in self._tracks:
            if track.seconds <= WORTH_A_DESCENT * search.best_s:
                deque(_descent(search, track), maxlen=0)
        track = min(self._tracks, key=lambda track: track.seconds)
        for _ in range(AT_ONCE):
            if track.seconds > WORTH_A_KICK * search.best_s or search.out_of_budget:
                break
            deque(self._go_on(search, track), maxlen=0)

    def _go_on(self, search: Search, track: _Track) -> Iterator[None]:
        """Go away from the fastest cut and downhill."""
        stops = track.stops
        for _ in range(NUM_KICKS):
            cuts = near(stops)
            if len(cuts):
                stops = cuts[self._random.integers(len(cuts))]
        other = _Track(track.cuts, stops, float(track.cuts.simulated(search, stops[None])[0]))
        yield from _descent(search, other)
        if other.seconds < track.seconds:
            track.stops, track.seconds = other.stops, other.seconds


def _descent(search: Search, track: _Track) -> Iterator[None]:
    """Go to faster neighbours until none is found or the budget is spent, piece by piece."""
    shape = track.cuts.shape
    size = max(1, min(BATCH, BATCH_ACTIONS // (2 * shape.num_stages * shape.variant.num_microbatches)))
    while _goes_down(search, track, size):
        yield
    yield


def _goes_down(search: Search, track: _Track, size: int) -> bool:
    """Whether one of a few batches of neighbours, those with the smallest rows first, has a faster cut; go there."""
    cuts = near(track.stops)
    cuts = cuts[np.argsort(track.cuts.smooth_rows(cuts), kind="stable")[: PATIENCE * size]]
    for first in range(0, len(cuts), size):
        if search.out_of_budget:
            break
        batch = cuts[first : first + size]
        times_s = track.cuts.simulated(search, batch)
        best = int(np.argmin(times_s))
        if times_s[best] < track.seconds * (1 - LEAST_GAIN):
            track.stops, track.seconds = batch[best], float(times_s[best])
            return True
    return False
