"""Raising the bound of one variant, step by step."""

import math

import numpy as np

from stagecut.planner.core.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.lagrangian import TOLERANCE, Priced, price, single_family
from stagecut.planner.network.pruning import position_ranges
from stagecut.planner.network.rows import Rows, build_rows
from stagecut.planner.network.stage_network import StageNetwork, build_network, num_with_positions, with_positions
from stagecut.planner.solvers.exact.arc_fixing import Sieve
from stagecut.planner.solvers.exact.label_bound import LabelBound
from stagecut.planner.solvers.exact.multipliers import improve_multipliers
from stagecut.planner.solvers.exact.stage_program import path_of, stage_program
from stagecut.planner.solvers.search.highs import IntegerAnswer, Outcome, solve_integer
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search

MULTIPLIER_GAP = 2e-4
"""How near the multipliers come to the linear relaxation, relative."""
PROBES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""Cutoffs to try in turn above the bound, relative, while no plan stays below the last one."""
SMALLEST_STEP = 1e-2
"""Least base of a probe, relative to the time of a plan: for bounds that start near zero."""
PRICED_ARCS, EASY_ARCS = 3000, 1000
"""With so few arcs left multipliers are looked for, and then the MIP is solved; with more, labels branch."""
LARGEST_NETWORK = 100_000
"""Arcs with positions up to which it is built to see how many are left."""
MOST_PROGRAMS = 10
"""After so many MIPs that found plans, none of them fast enough, labels branch."""
MAX_NODES = 5000
"""Of one MIP, before labels branch in its place."""
MARGIN = 1e-6
"""Relative; a bound that rests on HiGHS is rounded down by so much, ten times its loosest tolerance."""
FIRST_SHARES = (0.9, 0.6)
"""Of the limit, to be tried at the start."""
LABEL_STEPS = 4
"""Decisions and splits of the labels in one step."""


class VariantProof:
    """What is known about one variant: the arcs not yet ruled out, and a bound.

    Attributes
    ----------
    bound_s
        No plan of the variant is faster, save those already simulated.
    row_bound_s
        Least value of the rows over all plans of the variant, once solved to optimality.
    stalled
        Whether the last MIP ended without an answer; another try would end alike.
    """

    def __init__(self, search: Search, variant: Variant) -> None:
        self.variant = variant
        self.bound_s = 0.0
        self.row_bound_s: float | None = None
        self.stalled = False
        self._search = search
        self._shared = search.options.rows is RowChoice.SHARED
        self._sieve = Sieve(len(search.problem.cluster.servers), lambda: search.out_of_budget)
        self._coarse: Rows | None = None
        self._labels: LabelBound | None = None
        self._rows: Rows | None = None
        self._priced: Priced | None = None
        self._excluded: list[Ints] = []
        self._probe = 0
        self._is_hard = search.options.gap < 10 * MARGIN
        self._scale_s = 0.0

    @property
    def row_floor_s(self) -> float:
        """No plan of the variant has smaller rows."""
        return self.bound_s if self.row_bound_s is None else self.row_bound_s

    def advance(self) -> None:
        """Take the next step: the network, labels and their branching, multipliers, or one MIP."""
        if self._search.best_s == 0:
            self.row_bound_s = 0.0
        elif not self._shared and self.bound_s >= self._limit_s:
            return
        elif self._coarse is None:
            self._coarse = self._start()
        elif self._labels is not None and not self._labels.settled:
            self._raise_labels(self._labels, may_split=False)
        elif self._labels is not None and (self._is_hard or self._labels.num_arcs > PRICED_ARCS):
            self._raise_labels(self._labels, may_split=True)
        elif self._rows is None:
            self._rows = self._with_positions(self._coarse)
            self._is_hard = not self._shared and len(self._rows.network.arcs) > PRICED_ARCS
        elif self._priced is None:
            self._priced = self._find_multipliers(self._rows)
        else:
            self._solve_below(self._rows, self._priced)

    @property
    def _limit_s(self) -> float:
        """Plans whose rows reach this are of no interest: they cannot open the gap again."""
        search = self._search
        if self._shared:
            return search.best_s * (1 + TOLERANCE)
        return search.best_s * (1 - search.options.gap)

    def _start(self) -> Rows:
        """The network without positions, of the stages that may be in a plan of interest."""
        search = self._search
        with search.step("network"):
            rows = build_rows(
                build_network(search.costs, self.variant, longest_s=search.best_s, room_bytes=search.room_bytes),
                shared_only=self._shared,
            )
        search.count("arcs without positions", len(rows.network.arcs))
        rows = self._sieved(rows)
        search.count("arcs without positions, after sieve", len(rows.network.arcs))
        if not self._shared:
            self._labels = LabelBound(search, rows, self.bound_s)
        if len(rows.network.arcs) == 0:
            self._note(self._limit_s)
        else:
            self._note(self._first_bound(rows))
        return rows

    def _first_bound(self, rows: Rows) -> float:
        """A share of the limit that the sieve alone proves: something to show, and an order for the variants."""
        if not math.isfinite(self._limit_s):
            return 0.0
        with self._search.step("sieve"):
            for share in FIRST_SHARES:
                rows, _ = self._sieve.survivors(rows, share * self._limit_s)
                if len(rows.network.arcs) == 0:
                    return share * self._limit_s
        return 0.0

    def _with_positions(self, coarse: Rows) -> Rows:
        coarse = self._sieved(coarse)
        if len(coarse.network.arcs) == 0:
            return coarse
        with self._search.step("positions"):
            ranges = position_ranges(coarse, self._sieve.prices, self._limit_s)
            if not self._shared and num_with_positions(coarse.network, ranges) > LARGEST_NETWORK:
                return coarse
            network = with_positions(coarse.network, ranges=ranges, longest_s=self._search.best_s)
            rows = build_rows(network, shared_only=self._shared)
        return self._sieved(rows)

    def _sieved(self, rows: Rows) -> Rows:
        with self._search.step("sieve"):
            return self._sieve.survivors(rows, self._limit_s)[0]

    def _raise_labels(self, labels: LabelBound, *, may_split: bool) -> None:
        labels.raise_to(self._limit_s, may_split=may_split, max_steps=LABEL_STEPS)
        self._note(labels.bound_s)

    def _note(self, bound_s: float) -> None:
        """Raise the bound, and forget everything once no plan of interest is left."""
        self.bound_s = max(self.bound_s, min(self._limit_s, bound_s))
        if self.bound_s >= self._limit_s and not self._shared:
            self._labels = self._rows = self._priced = None

    def _num_open_arcs(self, priced: Priced) -> int:
        return int(np.count_nonzero(priced.through_s <= self._limit_s))

    def _without_slow_arcs(self, rows: Rows, priced: Priced) -> tuple[Rows, Ints]:
        """Forget the arcs that no plan of interest uses, and note what was proven."""
        limit_s = self._limit_s
        keep = priced.through_s < limit_s
        self.bound_s = max(self.bound_s, min(limit_s, priced.bound_s))
        network, kept = rows.network.restricted(keep)
        return rows.restricted(network, kept), kept

    def _find_multipliers(self, rows: Rows) -> Priced:
        search = self._search
        start = price(rows, single_family(rows, "fill"))
        first = rows.network.graph.shortest_path(start.costs_s)
        self._scale_s = min(search.best_s, rows.value(first)) or float(rows.round_trip.sum()) or 1.0
        search.count("arcs before fixing", len(rows.network.arcs))
        with search.step("multipliers"):
            priced = improve_multipliers(
                rows,
                start,
                scale_s=self._scale_s,
                target_gap=MULTIPLIER_GAP,
                cutoff_s=self._limit_s,
                time_limit_s=search.seconds_left,
                stop=lambda: search.out_of_budget,
            )
        self._simulate(rows.network, rows.network.graph.shortest_path(priced.costs_s))
        self._rows, kept = self._without_slow_arcs(rows, priced)
        search.count("arcs after fixing", len(kept))
        self._is_hard = not self._shared and len(kept) > EASY_ARCS
        return priced.taking(kept)

    def _solve_below(self, rows: Rows, priced: Priced) -> None:
        """One MIP over the arcs whose bound is within a cutoff."""
        cutoff_s = self._cutoff(priced)
        network, kept = rows.network.restricted(priced.through_s <= cutoff_s)
        if len(kept) == 0:
            self._nothing_below(cutoff_s)
            return
        small = rows.restricted(network, kept).scaled(1 / cutoff_s)
        answer = self._solve_integer(small, kept)
        if answer.outcome is Outcome.INFEASIBLE:
            self._nothing_below(cutoff_s)
            return
        stopped = answer.outcome is Outcome.STOPPED
        self._is_hard = not self._shared and (stopped or len(self._excluded) >= MOST_PROGRAMS)
        self.stalled = stopped and not self._is_hard
        proven_s = answer.bound * cutoff_s * (1 - self._margin)
        if answer.columns is not None:
            path = path_of(network, answer.columns)
            value_s = rows.value(kept[path])
            if answer.outcome is Outcome.OPTIMAL and self._mip_gap == 0:
                proven_s = value_s
                self.row_bound_s = value_s if self.row_bound_s is None else self.row_bound_s
            self._simulate(network, path)
            self._excluded.append(kept[path[network.arcs.is_stage[path]]])
        self.bound_s = max(self.bound_s, min(cutoff_s, proven_s))

    @property
    def _margin(self) -> float:
        """The value of the shared rows is compared with other solvers', not proven."""
        return TOLERANCE if self._shared else MARGIN

    @property
    def _mip_gap(self) -> float:
        return 0.0 if self._shared else self._search.options.gap / 2

    def _cutoff(self, priced: Priced) -> float:
        # Rounded down, what it proves must still reach the limit.
        most_s = self._limit_s / (1 - self._margin)
        if self._num_open_arcs(priced) <= EASY_ARCS and math.isfinite(most_s):
            return most_s
        step = PROBES[min(self._probe, len(PROBES) - 1)]
        return min(most_s, self.bound_s + step * max(self.bound_s, SMALLEST_STEP * self._scale_s))

    def _nothing_below(self, cutoff_s: float) -> None:
        self._probe += 1
        self.bound_s = max(self.bound_s, cutoff_s * (1 - self._margin))

    def _solve_integer(self, small: Rows, kept: Ints) -> IntegerAnswer:
        search = self._search
        excluded = [np.searchsorted(kept, arcs) for arcs in self._excluded if np.isin(arcs, kept).all()]
        program, _ = stage_program(small, integer=True, missing_penalty=None, excluded=excluded, longest=1.0)
        search.count("MIPs solved")
        with search.step("MIP"):
            return solve_integer(
                program,
                time_limit_s=search.seconds_left,
                stop=lambda: search.out_of_budget,
                on_solution=lambda columns: self._simulate(small.network, path_of(small.network, columns)),
                threads=search.options.threads,
                seed=search.options.seed,
                gap=self._mip_gap,
                max_nodes=None if self._shared else MAX_NODES,
            )

    def _simulate(self, network: StageNetwork, path: Ints) -> None:
        plan: Plan | None = decode_path(network, path) if len(path) else None
        if plan is not None:
            self._search.offer([plan])
