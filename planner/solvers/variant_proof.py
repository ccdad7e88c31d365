"""Raising the bound of one variant, step by step."""

import math

import numpy as np

from planner.core.plan import Plan
from planner.core.problem import Variant
from planner.cost.plan_costs import Ints
from planner.network.counted_paths import CountedPaths
from planner.network.decode import decode_path
from planner.network.lagrangian import TOLERANCE, Priced, price, single_family
from planner.network.rows import Rows, build_rows
from planner.network.stage_network import StageNetwork, build_network
from planner.solvers.highs import IntegerAnswer, Outcome, solve_integer
from planner.solvers.label_bound import LabelBound
from planner.solvers.multipliers import improve_multipliers
from planner.solvers.options import RowChoice
from planner.solvers.search import Search
from planner.solvers.stage_program import path_of, stage_program

MULTIPLIER_GAP = 2e-4
"""How near the multipliers come to the linear relaxation, relative."""
PROBES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""Cutoffs to try in turn above the bound, relative, while no plan stays below the last one."""
SMALLEST_STEP = 1e-2
"""Least base of a probe, relative to the time of a plan: for bounds that start near zero."""
EASY_ARCS = 3000
"""With so few arcs left the MIP is solved up to the best plan known at once; with more, labels branch first."""
PRICED_ARCS = 40_000
"""With more arcs than this, multipliers take longer than the labels' branching that they would save."""
LABEL_STEPS = 30
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
        self._rows: Rows | None = None
        self._priced: Priced | None = None
        self._floor_s = math.inf
        self._excluded: list[Ints] = []
        self._labels: LabelBound | None = None
        self._probe = 0
        self._scale_s = 0.0

    @property
    def row_floor_s(self) -> float:
        """No plan of the variant has smaller rows."""
        return self.bound_s if self.row_bound_s is None else self.row_bound_s

    def advance(self) -> None:
        """Take the next step: network, labels, multipliers, some branching, or one MIP."""
        if self._search.best_s == 0:
            self.row_bound_s = 0.0
        elif self._rows is None:
            self._rows = self._build()
        elif self._labels is None and self._wants_labels(self._rows):
            self._labels = LabelBound(self._search, self._rows, self.bound_s)
            self._raise_labels(self._labels, may_split=False)
        elif self._labels is not None and not self._labels.settled:
            self._raise_labels(self._labels, may_split=False)
        elif self._labels is not None and self._is_large(self._rows):
            self._raise_labels(self._labels, may_split=True)
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

    def _build(self) -> Rows:
        search = self._search
        network = build_network(search.costs, self.variant, longest_s=search.best_s)
        if math.isfinite(search.best_s):
            self._floor_s = self._limit_s
        search.count("arcs built", len(network.arcs))
        rows = build_rows(network, shared_only=self._shared)
        for family in ("fill", "busy"):
            rows, _ = self._without_slow_arcs(rows, price(rows, single_family(rows, family)))
        search.count("arcs within the best plan's time", len(rows.network.arcs))
        return rows

    def _wants_labels(self, rows: Rows) -> bool:
        return not self._shared and len(rows.network.arcs) > 0 and CountedPaths.fit(rows.network)

    def _raise_labels(self, labels: LabelBound, *, may_split: bool) -> None:
        limit_s = self._limit_s
        labels.raise_to(limit_s, may_split=may_split, max_steps=LABEL_STEPS)
        self.bound_s = max(self.bound_s, min(self._floor_s, limit_s, labels.bound_s))

    def _is_large(self, rows: Rows) -> bool:
        """Whether the MIP is out of reach for now: too many arcs to price, or to keep after pricing."""
        if self._priced is None:
            return len(rows.network.arcs) > PRICED_ARCS
        return self._num_open_arcs(self._priced) > EASY_ARCS

    def _num_open_arcs(self, priced: Priced) -> int:
        return int(np.count_nonzero(priced.through_s <= self._limit_s))

    def _without_slow_arcs(self, rows: Rows, priced: Priced) -> tuple[Rows, Ints]:
        """Forget the arcs that no plan of interest uses, and note what was proven."""
        limit_s = self._limit_s
        keep = priced.through_s < limit_s
        if not keep.all():
            self._floor_s = min(self._floor_s, limit_s)
        self.bound_s = max(self.bound_s, min(self._floor_s, priced.bound_s))
        network, kept = rows.network.restricted(keep)
        return rows.restricted(network, kept), kept

    def _find_multipliers(self, rows: Rows) -> Priced:
        search = self._search
        start = price(rows, single_family(rows, "fill"))
        first = rows.network.graph.shortest_path(start.costs_s)
        self._scale_s = min(search.best_s, rows.value(first)) or float(rows.round_trip.sum()) or 1.0
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
        self.stalled = answer.outcome is Outcome.STOPPED
        proven_s = answer.bound * cutoff_s * (1 - TOLERANCE)
        if answer.columns is not None:
            path = path_of(network, answer.columns)
            value_s = rows.value(kept[path])
            if answer.outcome is Outcome.OPTIMAL and self._mip_gap == 0:
                proven_s = value_s
                self.row_bound_s = value_s if self.row_bound_s is None else self.row_bound_s
            self._simulate(network, path)
            self._excluded.append(kept[path[network.arcs.is_stage[path]]])
        self.bound_s = max(self.bound_s, min(cutoff_s, self._floor_s, proven_s))

    @property
    def _mip_gap(self) -> float:
        return 0.0 if self._shared else self._search.options.gap / 2

    def _cutoff(self, priced: Priced) -> float:
        limit_s = self._limit_s
        if self._num_open_arcs(priced) <= EASY_ARCS and math.isfinite(limit_s):
            return limit_s
        step = PROBES[min(self._probe, len(PROBES) - 1)]
        return min(limit_s, self.bound_s + step * max(self.bound_s, SMALLEST_STEP * self._scale_s))

    def _nothing_below(self, cutoff_s: float) -> None:
        self._probe += 1
        self.bound_s = max(self.bound_s, min(self._floor_s, cutoff_s * (1 - TOLERANCE)))

    def _solve_integer(self, small: Rows, kept: Ints) -> IntegerAnswer:
        search = self._search
        excluded = [np.searchsorted(kept, arcs) for arcs in self._excluded if np.isin(arcs, kept).all()]
        program, _ = stage_program(small, integer=True, missing_penalty=None, excluded=excluded, longest=1.0)
        search.count("MIPs solved")
        return solve_integer(
            program,
            time_limit_s=search.seconds_left,
            stop=lambda: search.out_of_budget,
            on_solution=lambda columns: self._simulate(small.network, path_of(small.network, columns)),
            threads=search.options.threads,
            seed=search.options.seed,
            gap=self._mip_gap,
        )

    def _simulate(self, network: StageNetwork, path: Ints) -> None:
        plan: Plan | None = decode_path(network, path) if len(path) else None
        if plan is not None:
            self._search.offer([plan])
