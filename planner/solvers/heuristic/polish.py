"""Good plans whose device groups are changed one after another, as long as there is time."""

from collections import deque
from collections.abc import Iterable, Iterator

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.arrangement import arrangement_of
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.candidates import Candidate
from stagecut.planner.solvers.heuristic.local_search import change_groups, move_layers, sequence_of
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.search import Search

Start = tuple[SequenceCosts, Ints, float]
"""Device groups, a cut of shape (S,), and its simulated time."""


class Polish:
    """The plans to begin from: the best one known whenever that is new, then candidates, the fastest first.

    Takes candidates in that order with their simulated times.
    """

    def __init__(self, tables: StageTables, candidates: Iterable[tuple[float, Candidate]]) -> None:
        self._tables = tables
        self._waiting = deque((own.sequence, own.stops, seconds) for seconds, own in candidates)
        self._begun = set[tuple[PlacedGroup, ...]]()

    def pieces(self, search: Search) -> Iterator[None]:
        """Improve one plan after the other, a piece of work at a time, and offer what that finds.

        There is no end: where no plan is left, a better one may come from elsewhere.
        """
        while True:
            start = None if search.out_of_budget else self._next(search)
            if start is None:
                yield
            else:
                yield from self._improve(search, start)

    def improve_one(self, search: Search) -> None:
        """The same of the next plan at once."""
        start = None if search.out_of_budget else self._next(search)
        if start is not None:
            deque(self._improve(search, start), maxlen=0)

    def _improve(self, search: Search, start: Start) -> Iterator[None]:
        """Move layers and change device groups, unless a better plan comes from elsewhere."""
        sequence, stops, seconds = start
        stops, seconds = move_layers(search, sequence, stops, seconds)
        for _ in change_groups(search, self._tables, sequence, stops, seconds):
            known = search.best_plan
            yield
            if search.best_plan is not known:
                return
        end = self._best(search)
        if end is not None:  # Nothing next to it is better.
            self._begun.add(end[0].groups)

    def _next(self, search: Search) -> Start | None:
        best = self._best(search)
        if best is not None:
            self._waiting.appendleft(best)
        while self._waiting:
            start = self._waiting.popleft()
            if start[0].groups not in self._begun:
                self._begun.add(start[0].groups)
                return start
        return None

    def _best(self, search: Search) -> Start | None:
        """The best plan, if its devices have one stage each and its micro-batches one size."""
        best = search.best_plan
        if best is None or best.schedule is Schedule.INTERLEAVED or best.is_unequal:
            return None
        arrangement = arrangement_of(search.costs.of(best.share), best)
        return *sequence_of(self._tables, best.variant, arrangement), search.best_s
