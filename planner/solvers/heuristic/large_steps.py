"""Better plans a few random changes of device groups away, as long as there is time: a large-step Markov chain.

Martin, Otto and Felten, Large-Step Markov Chains for the Traveling Salesman Problem (1991): every large step is
followed by a descent, and the next one begins from the local optimum that it ends in, or from the one before. Here a
step is some random changes of device groups (:mod:`stagecut.planner.solvers.heuristic.moves`), the descent moves
layers, and ends that are slower replace the plan with the probability exp(-(slower by) / (`TEMPERATURE` x the time)).

The descent over single changes of :mod:`stagecut.planner.solvers.heuristic.local_search` simulates the few with the
smallest estimates and ends where none of these is faster: on five of ten problems that were open after 60 s at plans
0.7 to 3 % slower than those found here within 15 s.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.candidates import Candidate, best_known
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.local_search import descend, settled
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.moves import groups_of, random_change, runs_of, suffice
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.search import Search

TEMPERATURE = 0.004
"""Relative to the time of the plan. With none, half of it or 2.5 times as much, plans of ten problems were no better on
average after 12 s."""
ONE_MORE = 0.5
"""Probability that another change follows a change."""
WORTH_A_DESCENT, WORTH_SIMULATING = 1.2, 1.016
"""Layers are moved by estimates, and the end simulated, where the estimates before and after are no more times as long
as the plan takes. Descents take most of the time; from 1.1 on, two of ten problems had no better plan after 12 s."""
AT_ONCE, MANY_STAGES = 10, 30
"""Steps in a piece; fewer where there are more stages than this, as a descent takes about the third power of these."""


@dataclass(frozen=True, slots=True)
class LargeSteps:
    """What may still be tried, from the best plan known."""

    tables: StageTables

    def pieces(self, search: Search) -> Iterator[None]:
        """Take steps, some in a piece, and offer what they find; has no end."""
        chain = Chain(self.tables, search.options.seed)
        while True:
            for _ in range(chain.num_at_once):
                if search.out_of_budget:
                    break
                chain.step(search)
            yield


class Chain:
    """Where the chain is; a better plan from elsewhere is where it goes on."""

    def __init__(self, tables: StageTables, seed: int) -> None:
        self.at: Candidate | None = None
        self._tables, self._random = tables, np.random.default_rng(seed)
        self._best: Plan | None = None
        self._tried = set[tuple[Variant, tuple[PlacedGroup, ...]]]()

    @property
    def num_at_once(self) -> int:
        """How many steps are a piece of work."""
        num_stages = 0 if self.at is None else self.at.sequence.num_stages
        return math.ceil(AT_ONCE * min(1.0, (MANY_STAGES / max(1, num_stages)) ** 3))

    def step(self, search: Search) -> None:
        """One large step and its descent."""
        if search.best_plan is not self._best:
            self.at, self._best = best_known(search, self._tables), search.best_plan
        if self.at is None:
            return
        end = self._end(search, self.at)
        if end is not None and self._accepts(end.seconds - self.at.seconds, self.at.seconds):
            self.at = end

    def _accepts(self, slower_s: float, seconds: float) -> bool:
        return slower_s <= self._random.exponential(TEMPERATURE) * seconds

    def _end(self, search: Search, at: Candidate) -> Candidate | None:
        """The end of the descent behind a few changes; None where it is not worth the way, or was met before."""
        variant, runs = at.sequence.variant, runs_of(at.sequence.groups)
        cluster = search.costs.of(variant.share).cluster
        for _ in range(self._random.geometric(1 - ONE_MORE)):
            runs = random_change(search.problem, cluster, variant.micro_batch, runs, self._random)
        groups = groups_of(runs)
        if (variant, groups) in self._tried or not suffice(cluster, self._tables.num_layers, groups):
            return None
        self._tried.add((variant, groups))
        sequence = SequenceCosts(self._tables, variant, groups)
        stops = min_max_stops(sequence, sequence.leeway)
        if stops is None or estimated_times(sequence, stops[None])[0] > WORTH_A_DESCENT * at.seconds:
            return None
        stops, estimate_s = descend(sequence, stops)
        if estimate_s > WORTH_SIMULATING * at.seconds:
            return None
        stops, seconds = settled(search, sequence, stops, search.best_s)
        return Candidate(sequence=sequence, stops=stops, seconds=seconds) if math.isfinite(seconds) else None
