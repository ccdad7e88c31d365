"""Some of the plans of one variant, with a bound on them.

A part is the set of paths through a network, without positions at first. Its bound is raised by
bisection over T: :mod:`planner.solvers.exact.arc_fixing` leaves out arcs, :mod:`planner.solvers.exact.decision` asks
labels on what is left. Where neither rules all plans out, the part is divided: by the number of
stages, into a network with positions, and by single stages.
"""

import math
from collections.abc import Iterator

import numpy as np

from stagecut.planner.core.arrays import Bools, Floats, Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.network.counted_paths import CountedPaths
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.layout import layout_of
from stagecut.planner.network.pruning import arc_prices, cover_of, position_ranges
from stagecut.planner.network.rows import Rows, build_rows
from stagecut.planner.network.stage_network import num_with_positions, with_depths, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.solvers.exact.arc_fixing import Sieve
from stagecut.planner.solvers.exact.decision import Decision, StoppedError
from stagecut.planner.solvers.heuristic.local_search import improve
from stagecut.planner.solvers.search.search import Search

WORTH_IMPROVING = 1.03
"""Layers are moved in plans that are no slower than this times the best one."""
PRECISION, COARSE_PRECISION = 1e-4, 1e-3
"""Relative width of an interval at which its bisection stops, with and without positions."""
FIRST_STEP, STEP_GROWTH = 2e-4, 4.0
"""A part made by a split is asked just above the bound of its parent first, then further and further up."""
MANY_ARCS = 300_000
"""A network with positions is built once it has no more arcs than this, or all plans have one length."""
TIGHTENINGS = 3
"""How often warm-up depths and arcs are narrowed down in turn."""


class Part:
    """Some of the plans: none below `low_s`, and at the upper end labels find a path.

    Parameters
    ----------
    step_s
        First step above `low_s`; infinite: ask at the limit first.
    """

    def __init__(self, search: Search, rows: Rows, low_s: float, *, step_s: float = math.inf) -> None:
        self.low_s = low_s
        self._step_s = step_s
        self._high_s = math.inf
        self._floor_s = 0.0
        self._is_new = False
        self._path: Ints | None = None
        self._plan: Plan | None = None
        self._search, self._rows = search, rows
        self._inner, self._numbers = rows, np.arange(len(rows.network.arcs))
        self._sieve = Sieve(len(rows.network.cluster.servers), self._is_over)

    def _is_over(self) -> bool:
        return self._search.out_of_budget

    @property
    def rows(self) -> Rows:
        """Over the arcs that plans below the latest limit may use."""
        return self._rows

    @property
    def narrow(self) -> bool:
        """Whether further halving would bring nothing, or little compared with dividing the part."""
        precision = PRECISION if self._rows.network.has_positions else COARSE_PRECISION
        return self._path is not None and self._high_s - self.low_s <= precision * self._high_s

    @property
    def is_single(self) -> bool:
        """Whether only splitting on a stage is left: positions are known, and the number of stages is one."""
        return self._rows.network.has_positions and len(self._lengths) <= 1

    @property
    def ready(self) -> bool:
        """Whether the next thing to do is to divide the part: asked at the limit, or its bisection is over."""
        return self.narrow or (self._path is not None and not self.is_single and self._rows.network.has_positions)

    def advance(self, limit_s: float) -> None:
        """Ask once more: in growing steps above the bound until a path is found, then in the middle."""
        attempt_s = min(self.low_s + self._step_s, limit_s, (self.low_s + self._high_s) / 2)
        self._search.count("decisions")
        try:
            found = self._below(self._inner, attempt_s, thorough=attempt_s == limit_s)
        except StoppedError:
            return
        if found is None:
            self.low_s = attempt_s
            self._step_s *= STEP_GROWTH
            return
        rows, chosen, path = found
        numbers = self._numbers[chosen]
        if attempt_s == limit_s:
            self._rows, numbers = rows, np.arange(len(chosen))
        self._inner, self._numbers = rows, numbers
        self._high_s, self._path = attempt_s, numbers[path]
        self._try(self._path)

    def divided(self, limit_s: float) -> Iterator["Part"]:
        """Smaller parts that hold the same plans below the limit, save those simulated."""
        if self.is_single:
            yield from self._split()
        elif self._rows.network.has_positions:
            yield from self._by_length_with_positions()
        else:
            yield from self._with_positions_or_by_length(limit_s)

    def _with_positions_or_by_length(self, limit_s: float) -> Iterator["Part"]:
        """The network with positions if that is small enough, else plans of fewer and of more stages."""
        rows, search = self._rows, self._search
        ranges = position_ranges(rows, self._sieve.prices, limit_s)
        shortest, longest = int(ranges[0][0]), int(ranges[1][0])
        if shortest > longest:
            return
        if shortest == longest or num_with_positions(rows.network, ranges) <= MANY_ARCS:
            search.count("arcs without positions, after labels", len(rows.network.arcs))
            with search.step("positions"):
                finer = build_rows(with_positions(rows.network, ranges=ranges, longest_s=limit_s))
            search.count("arcs with positions", len(finer.network.arcs))
            if len(finer.network.arcs):
                part = self._part(finer, step_s=math.inf)
                part._is_new = True
                yield part
            return
        middle = (shortest + longest) // 2
        for lengths in ((shortest, middle), (middle + 1, longest)):
            meant = rows.network.of_lengths(*lengths)
            network, _ = with_depths(meant, meant.stages_to_come(), longest_s=limit_s)
            if len(network.arcs):
                yield self._part(build_rows(network), step_s=math.inf)

    @property
    def _lengths(self) -> Ints:
        arcs = self._rows.network.arcs
        lengths: Ints = np.unique(arcs.position[arcs.tail == 0])
        return lengths

    def _by_length_with_positions(self) -> Iterator["Part"]:
        arcs = self._rows.network.arcs
        middle = self._lengths[len(self._lengths) // 2]
        for chosen in (arcs.position < middle, arcs.position >= middle):
            yield from self._restricted((arcs.tail != 0) | chosen, step_s=math.inf)

    def _split(self) -> Iterator["Part"]:
        """Plans with, and plans without, one stage of the path; none once the path is the only plan."""
        assert self._path is not None
        self._search.count("splits")
        arcs = self._rows.network.arcs
        chosen = self._stage_to_branch_on(self._path[arcs.is_stage[self._path]])
        if chosen is None:
            return
        numbers = np.arange(len(arcs))
        overlapping = (arcs.start < arcs.stop[chosen]) & (arcs.stop > arcs.start[chosen])
        step_s = FIRST_STEP * self.low_s
        yield from self._restricted(~overlapping | (numbers == chosen), step_s=step_s)
        yield from self._restricted(numbers != chosen, step_s=step_s)

    def _below(self, rows: Rows, limit_s: float, *, thorough: bool) -> tuple[Rows, Ints, Ints] | None:
        """The rows over the arcs that plans below the limit may use, which these are, and a path over them.

        Where counting hosts takes too much memory the path may open too many.
        """
        rows, kept = self._sieved(rows, limit_s)
        if self._is_new:
            self._search.count("arcs with positions, after sieve", len(kept))
            self._is_new = False
        if len(kept) == 0:
            return None
        if not CountedPaths.fit(rows.network, room_bytes=self._search.room_bytes):
            path = rows.network.graph.shortest_path(rows.round_trip + arc_prices(rows, self._sieve.prices))
            return rows, kept, path
        decision, found = self._asked(rows, limit_s)
        if found is not None and thorough:
            with self._search.step("labels"):
                self._floor_s = decision.bottleneck_floor(limit_s, self._floor_s, decision.bottleneck_of(found))
            rows, kept = self._tightened(rows.with_floor(self._floor_s), kept, limit_s)
            if len(kept) == 0:
                return None
            decision, found = self._asked(rows, limit_s)
        if found is None:
            return None
        smaller, chosen = rows.network.restricted(decision.possible)
        return rows.restricted(smaller, chosen), kept[chosen], np.searchsorted(chosen, found)

    def _sieved(self, rows: Rows, limit_s: float) -> tuple[Rows, Ints]:
        with self._search.step("sieve"):
            return self._sieve.survivors(rows, limit_s)

    def _asked(self, rows: Rows, limit_s: float) -> tuple[Decision, Ints | None]:
        with self._search.step("labels"):
            decision = Decision(rows, stop=self._is_over)
            return decision, decision.path_below(limit_s)

    def _tightened(self, rows: Rows, kept: Ints, limit_s: float) -> tuple[Rows, Ints]:
        """Fewer warm-up depths where the limit leaves fewer positions, and fewer arcs then, in turn."""
        for _ in range(0 if rows.network.has_positions else TIGHTENINGS):
            if len(kept) == 0:
                break
            with self._search.step("network"):
                ranges = position_ranges(rows, self._sieve.prices, limit_s)
                network, chosen = with_depths(rows.network, ranges, longest_s=limit_s)
            if len(chosen) == 0:
                return rows, chosen
            narrower = network.arcs.largest_depth < rows.network.arcs.largest_depth[chosen]
            if not narrower.any() and len(chosen) == len(kept):
                break
            kept = kept[chosen]
            rows, chosen = self._sieved(build_rows(network).with_floor(self._floor_s), limit_s)
            kept = kept[chosen]
        return rows, kept

    def _stage_to_branch_on(self, stages: Ints) -> int | None:
        """Of the stages that have alternatives, the one with the largest row of its own."""
        arcs = self._rows.network.arcs
        for index in np.argsort(-self._largest_rows(stages), kind="stable"):
            arc = stages[index]
            rivals = arcs.is_stage & (arcs.start < arcs.stop[arc]) & (arcs.stop > arcs.start[arc])
            if np.count_nonzero(rivals) > 1:
                return int(arc)
        return None

    def _largest_rows(self, stages: Ints) -> Floats:
        if self._plan is None:
            fill = next(family for family in self._rows.families if family.name == "fill")
            return cover_of(fill)[stages]
        rows = bound_rows(self._search.costs.plan(self._plan))
        return np.maximum(rows["drain"], rows["late"])

    def _restricted(self, chosen: Bools, *, step_s: float) -> Iterator["Part"]:
        network, kept = self._rows.network.restricted(chosen)
        if len(kept):
            yield self._part(self._rows.restricted(network, kept), step_s=step_s)

    def _part(self, rows: Rows, *, step_s: float) -> "Part":
        part = Part(self._search, rows, self.low_s, step_s=step_s)
        part._floor_s = self._floor_s
        return part

    def _try(self, path: Ints) -> None:
        """Simulate the plan of a path and, where it comes close to the best one, move its layers about."""
        search, network = self._search, self._rows.network
        self._plan = plan = decode_path(network, path)
        if plan is None:
            return
        (seconds,) = search.offer([plan])
        if self._step_s == math.inf and seconds <= WORTH_IMPROVING * search.best_s:
            with search.step("local search"):
                improve(search, plan.variant, layout_of(network.costs, plan), seconds)
