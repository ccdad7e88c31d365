"""MIPs below a cutoff, one after the other; the plan of each is simulated and excluded from the next."""

import math
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import MIP_BOUND, PATH_SUM
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.lagrangian import price, single_family
from stagecut.planner.network.rows import Rows
from stagecut.planner.network.stage_network import StageNetwork
from stagecut.planner.solvers.exact.agenda import Outcome, Part, limit_of
from stagecut.planner.solvers.exact.mixed_integer_program import path_of, stage_program
from stagecut.planner.solvers.exact.multipliers import improve_multipliers
from stagecut.planner.solvers.search.highs import IntegerAnswer, SolveOutcome, solve_integer
from stagecut.planner.solvers.search.options import RowChoice, SolveOptions
from stagecut.planner.solvers.search.search import Search

PROBES = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
"""Cutoffs to try in turn above the bound, relative, while no plan stays below the last one; with the last one alone,
resnet50 on hetpipe-16 in the shared rows had a bound of 9.81 ms after 80 s in place of 10.24 ms."""
SMALLEST_STEP = 1e-2
"""Least base of a probe, relative to the time of a plan: for bounds that start near zero. Half and twice this changed
nothing there; with the time of a plan as the base throughout, searches for small problems did not end."""
EASY_ARCS = 1000
"""With no more arcs than this the cutoff is the limit itself; half and twice as many changed no plan and no bound on
vgg16 and resnet50 on mixed-server-8."""
MOST_PROGRAMS = 10
"""After this many MIPs that found plans, none of them fast enough, labels take over; 5 and 20 changed no plan and no
bound on vgg16 on hetpipe-16, but solved 12 and 42 MIPs in place of 22."""
MAX_NODES = 5000
"""Limit on the tree of one MIP, a safeguard: half and twice as many changed nothing on vgg16 on hetpipe-16."""


class ProgramPart:
    """Plans of few arcs as a MIP, if the arcs that multipliers leave are few enough; if not, `otherwise` goes on."""

    is_stuck = is_small = False

    def __init__(self, rows: Rows, otherwise: Part) -> None:
        self.bound_s = otherwise.bound_s
        self._rows, self._otherwise = rows, otherwise
        self._rounds: MipRounds | None = None

    def step(self, search: Search) -> Outcome:
        """Leave out arcs, or solve one MIP, whose plan is excluded from the next."""
        limit_s = limit_of(search)
        if self._rounds is None:
            bound_s, self._rounds = first_round(search, self._rows, limit_s)
            gives_up = self._rounds.num_arcs > EASY_ARCS
        else:
            found = self._rounds.solve_next(search, self.bound_s, limit_s)
            bound_s, gives_up = found.bound_s, found.gives_up
        self.bound_s = max(self.bound_s, min(limit_s, bound_s))
        self._otherwise.bound_s = self.bound_s
        return Outcome((self._otherwise if gives_up else self,))


def first_round(search: Search, rows: Rows, limit_s: float) -> "tuple[float, MipRounds]":
    """A bound on all plans, and the MIPs over the arcs that good multipliers do not prove too slow for the limit."""
    merged = rows.merged()
    start = price(merged, single_family(merged, "fill"))
    first = rows.network.graph.shortest_path(start.costs_s)
    scale_s = min(search.best_s, rows.value(first)) or float(rows.round_trip.sum()) or 1.0
    search.count("arcs before fixing", len(rows.network.arcs))
    with search.step("multipliers"):
        priced = improve_multipliers(
            merged, start, scale_s=scale_s, time_limit_s=search.seconds_left, stop=lambda: search.out_of_budget
        )
    simulate_path(search, rows.network, rows.network.graph.shortest_path(priced.costs_s))
    network, kept = rows.network.restricted(priced.through_s < limit_s)
    search.count("arcs after fixing", len(kept))
    rounds = MipRounds(search.options, rows.restricted(network, kept), priced.through_s[kept], scale_s)
    return priced.bound_s, rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one MIP has shown."""

    bound_s: float
    """No plan is faster, except those excluded."""
    row_bound_s: float | None = None
    """Value of the rows of the plan found, if proven to be the least."""
    stopped: bool = False
    """Whether HiGHS ended without an answer."""
    gives_up: bool = False
    """Whether another round would not be worthwhile."""


class MipRounds:
    """The MIPs over one network.

    No plan that uses an arc is faster than `through_s`, shape (A,); `scale_s` is some iteration time near the bound.
    """

    def __init__(self, options: SolveOptions, rows: Rows, through_s: Floats, scale_s: float) -> None:
        self._rows, self._through_s, self._scale_s = rows, through_s, scale_s
        self._shared = options.rows is RowChoice.SHARED
        # The value of the shared rows is compared with other solvers', not proven.
        self._margin = PATH_SUM if self._shared else MIP_BOUND
        self._mip_gap = 0.0 if self._shared else options.gap / 2
        self._excluded: list[Ints] = []
        self._probe = 0

    @property
    def num_arcs(self) -> int:
        """Arcs of the network."""
        return len(self._rows.network.arcs)

    def solve_next(self, search: Search, bound_s: float, limit_s: float) -> Round:
        """One MIP over the arcs whose bound is within a cutoff."""
        cutoff_s = self._cutoff(bound_s, limit_s)
        network, kept = self._rows.network.restricted(self._through_s <= cutoff_s)
        if len(kept) == 0:
            return self._nothing_below(cutoff_s)
        answer = self._solve(search, self._rows.restricted(network, kept).scaled(1 / cutoff_s), kept)
        if answer.outcome is SolveOutcome.INFEASIBLE:
            return self._nothing_below(cutoff_s)
        stopped = answer.outcome is SolveOutcome.STOPPED
        gives_up = stopped or len(self._excluded) >= MOST_PROGRAMS
        proven_s, row_bound_s = answer.bound * cutoff_s * (1 - self._margin), None
        if answer.columns is not None:
            path = path_of(network, answer.columns)
            if answer.outcome is SolveOutcome.OPTIMAL and self._mip_gap == 0:
                proven_s = row_bound_s = self._rows.value(kept[path])
            simulate_path(search, network, path)
            self._excluded.append(kept[path[network.arcs.is_stage[path]]])
        return Round(bound_s=min(cutoff_s, proven_s), row_bound_s=row_bound_s, stopped=stopped, gives_up=gives_up)

    def _cutoff(self, bound_s: float, limit_s: float) -> float:
        # What it proves is rounded down, and must still reach the limit.
        most_s = limit_s / (1 - self._margin)
        if np.count_nonzero(self._through_s <= limit_s) <= EASY_ARCS and math.isfinite(most_s):
            return most_s
        step = PROBES[min(self._probe, len(PROBES) - 1)]
        return min(most_s, bound_s + step * max(bound_s, SMALLEST_STEP * self._scale_s))

    def _nothing_below(self, cutoff_s: float) -> Round:
        self._probe += 1
        return Round(bound_s=cutoff_s * (1 - self._margin))

    def _solve(self, search: Search, small: Rows, kept: Ints) -> IntegerAnswer:
        excluded = [np.searchsorted(kept, arcs) for arcs in self._excluded if np.isin(arcs, kept).all()]
        program, _ = stage_program(small.merged(), integer=True, missing_penalty=None, excluded=excluded, longest=1.0)
        search.count("MIPs solved")
        with search.step("MIP"):
            return solve_integer(
                program,
                time_limit_s=search.seconds_left,
                stop=lambda: search.out_of_budget,
                on_solution=lambda columns: simulate_path(search, small.network, path_of(small.network, columns)),
                threads=search.options.threads,
                seed=search.options.seed,
                gap=self._mip_gap,
                max_nodes=None if self._shared else MAX_NODES,
            )


def simulate_path(search: Search, network: StageNetwork, path: Ints) -> None:
    """Simulate the plan of a path, if there is one."""
    plan = decode_path(network, path) if len(path) else None
    if plan is not None:
        search.offer([plan])
