"""AutoPipe-H: stages on unlike servers, with a device mapping that avoids contended links.

"AutoPipe-H: A Heterogeneity-Aware Data-Paralleled Pipeline Approach on Commodity GPU Servers", IEEE Transactions on
Computers 74(4), 2025, doi 10.1109/TC.2024.3517748. We only know its abstract: the partitioner is that of
:mod:`stagecut.planner.solvers.papers.autopipe_partition`; **the device mapping is ours**. What the abstract says, what
we chose, and how good that is: docs/papers/autopipe-h.md.

1. *Shapes* and orders of servers, see :mod:`stagecut.planner.solvers.papers.autopipe_mapping.mappings`.
2. *Partition*: layers are balanced using their times on the actual devices.
3. *Rank*: the largest lower bound of the iteration time, link loads included, see
   :mod:`stagecut.planner.solvers.papers.autopipe_mapping.link_loads`.
4. *Simulation* of the best mappings of each variant, in AutoPipe's partition as well.
5. *Improvement*: in the fastest ones, servers are exchanged, left out, added or reshaped while that saves time.
6. *Program*: for their partitions, :mod:`stagecut.planner.solvers.papers.autopipe_mapping.program` finds the mapping
   with the least bound, the layers are balanced anew, and so on while the simulated time falls.

Approximated here: everything the abstract does not say. AutoPipe's partition is made for at most 2 S micro-batches on S
stages, as in its published planner. All stages on a host have the same replicas and degree; the schedule is 1F1B.
Memory is respected from the start, whereas the published planner of AutoPipe ignores it.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.tolerances import AUTOPIPE_H_LEAST_GAIN
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import assemble
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.heuristic.candidates import CandidateSearch
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.moves import groups_of
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import load_bound, tied_sums
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import DeviceMapping, neighbours, start_mappings
from stagecut.planner.solvers.papers.autopipe_mapping.program import MappingProgram
from stagecut.planner.solvers.papers.autopipe_partition.partition import partition
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "autopipe-h"
NUM_SIMULATED = 3
"""Mappings of each variant that are simulated; of 4 plans, two are 2 and 14 % slower with 1, one 10 % faster with 6."""
NUM_IMPROVED = 3
"""Mappings that are improved, of all variants together; with 1, one of 4 plans is 13 % slower; with 6, none faster."""
MOST_STAGES = 64
"""AutoPipe's search and the program are skipped for longer pipelines; bounds the time, and changes none of 10 plans."""
PROGRAM_SHARE = 0.2
"""Share of the time left that one program may take: it matters only under a time limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedPlan:
    """A mapping with layers."""

    mapping: DeviceMapping
    plan: Plan
    rank_s: float
    """Lower bound of the iteration time."""
    seconds: float = math.inf
    """Simulated iteration time, once known."""

    @property
    def stops(self) -> tuple[int, ...]:
        """First layer after each stage."""
        return tuple(stage.stop for stage in self.plan.stages)


def solve(problem: Problem, search: Search) -> Result:
    """The best plan of heuristic and program; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    MappingSearch(problem, search, search.costs).run()
    return search.result(NAME, proves=False)


class MappingSearch:
    """One run of the search.

    A benchmark overrides :meth:`rank_s` and :meth:`simulated_s`, and passes other costs, to learn what ignoring
    contention costs.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """

    link_loads = True
    """Whether the program bounds the time by the loads of links."""

    def __init__(self, problem: Problem, search: Search, costs: CostModel) -> None:
        require_schedules(problem, NAME, (Schedule.ONE_F_ONE_B,))
        self.search, self.costs = search, costs
        self.best_s = math.inf
        self._problem, self._tables = problem, StageTables(costs)

    def run(self) -> None:
        """Heuristic first, then the program for what it found."""
        with self.search.step("mappings"):
            found = self._heuristic()
        with self.search.step("mapping programs"):
            for best in found:
                while (better := self._program_step(best)) is not None:
                    best = better

    def rank_s(self, plan: Plan) -> float:
        """Lower bound of the iteration time, including link loads and the summing of tied weights."""
        costs = self.costs.plan(plan)
        return max(lower_bound(costs), load_bound(costs, tied_sums(self.costs.of(plan.share), plan)))

    def simulated_s(self, plan: Plan) -> float:
        """Simulated iteration time."""
        (seconds,) = self.search.offer([plan])
        return seconds

    def _heuristic(self) -> list[MappedPlan]:
        """The best mappings, improved; the fastest first."""
        found = list[MappedPlan]()
        for variant in self._variants():
            cluster = self.costs.of(variant.share).cluster
            starts = self._promising(variant, start_mappings(self._problem, cluster, variant.micro_batch))
            found += self._simulated_in_both_partitions(starts, self.best_s)
            found = _fastest(found)
        return _fastest([self._improved(candidate) for candidate in found])

    def _variants(self) -> Iterator[Variant]:
        """Those that might beat the best plan so far, the most promising first."""
        floor_s = CandidateSearch(self._tables).floor_s
        variants = [variant for variant in self._problem.variants if variant.schedule is Schedule.ONE_F_ONE_B]
        for variant in sorted(variants, key=floor_s):
            if self.search.out_of_budget or floor_s(variant) >= self.best_s:
                return
            yield variant

    def _promising(self, variant: Variant, mappings: Iterable[DeviceMapping]) -> list[MappedPlan]:
        """Those with the least bounds, with balanced stages."""
        found = list[MappedPlan]()
        for mapping in mappings:
            if self.search.out_of_budget and self.best_s < math.inf:
                break
            found += self._balanced(variant, mapping)
        return sorted(found, key=lambda candidate: candidate.rank_s)[:NUM_SIMULATED]

    def _balanced(self, variant: Variant, mapping: DeviceMapping) -> Iterator[MappedPlan]:
        """The mapping with balanced stages, if some fit in memory."""
        stages = self._stages(variant, mapping)
        stops = min_max_stops(stages)
        if stops is not None:
            yield from self._candidate(mapping, stages, stops)

    def _as_autopipe(self, start: MappedPlan) -> Iterator[MappedPlan]:
        """The same mapping in AutoPipe's partition, if that is another one and fits in memory."""
        stages = self._stages(start.plan.variant, start.mapping)
        if self.search.out_of_budget or stages.num_stages > MOST_STAGES:
            return
        times = StageTimes(forward_s=stages.forward_s, backward_s=stages.backward_s, transfer_s=stages.transfer_s)
        stops = partition(times, min(start.plan.variant.num_microbatches, 2 * stages.num_stages)).stops
        if tuple(stops.tolist()) != start.stops:
            yield from self._candidate(start.mapping, stages, stops)

    def _stages(self, variant: Variant, mapping: DeviceMapping) -> SequenceCosts:
        return SequenceCosts(self._tables, variant, groups_of(mapping))

    def _candidate(self, mapping: DeviceMapping, stages: SequenceCosts, stops: Ints) -> Iterator[MappedPlan]:
        variant = stages.variant
        plan = assemble(self.costs.of(variant.share), variant, stages.arrangement(stops))
        self.search.count("mappings ranked")
        if plan is not None:
            yield MappedPlan(mapping=mapping, plan=plan, rank_s=self.rank_s(plan))

    def _simulated_in_both_partitions(self, candidates: list[MappedPlan], below_s: float) -> list[MappedPlan]:
        """Those that might take less than so long, each in AutoPipe's partition too."""
        promising = (candidate for candidate in candidates if candidate.rank_s < below_s)
        return self._simulated([c for start in promising for c in (start, *self._as_autopipe(start))], below_s)

    def _simulated(self, candidates: list[MappedPlan], below_s: float) -> list[MappedPlan]:
        """Those that might take less than so long, with their times."""
        found = list[MappedPlan]()
        for candidate in candidates:
            if self.search.out_of_budget and self.best_s < math.inf:
                break
            if candidate.rank_s < below_s:
                seconds = self.simulated_s(candidate.plan)
                self.best_s = min(self.best_s, seconds)
                found.append(replace(candidate, seconds=seconds))
        return found

    def _improved(self, candidate: MappedPlan) -> MappedPlan:
        """Move to better neighbours while there are any."""
        while (better := self._better_neighbour(candidate)) is not None:
            candidate = better
        return candidate

    def _better_neighbour(self, candidate: MappedPlan) -> MappedPlan | None:
        below_s = candidate.seconds * (1 - AUTOPIPE_H_LEAST_GAIN)
        variant, cluster = candidate.plan.variant, self.costs.of(candidate.plan.share).cluster
        near = self._promising(variant, neighbours(self._problem, cluster, candidate.mapping, variant.micro_batch))
        return _fastest_below(self._simulated_in_both_partitions(near, below_s), below_s)

    def _program_step(self, candidate: MappedPlan) -> MappedPlan | None:
        """The mapping by program, the layers as they were or balanced anew; None if that is no faster."""
        variant, stops = candidate.plan.variant, candidate.stops
        if self.search.out_of_budget or len(stops) > MOST_STAGES:
            return None
        costs = self.costs.of(variant.share)
        program = MappingProgram(costs, variant, candidate.mapping, stops, loads=self.link_loads)
        self.search.count("programs solved")
        mapping = program.solve(self.search, PROGRAM_SHARE * self.search.seconds_left)
        if mapping is None:
            return None
        new = [*self._candidate(mapping, self._stages(variant, mapping), np.array(stops))]
        new += self._balanced(variant, mapping)
        new += [each for start in new[:1] for each in self._as_autopipe(start)]
        below_s = candidate.seconds * (1 - AUTOPIPE_H_LEAST_GAIN)
        return _fastest_below(self._simulated(new, candidate.seconds), below_s)


def _fastest(found: list[MappedPlan]) -> list[MappedPlan]:
    """As many as are worth improving."""
    return sorted(found, key=lambda candidate: candidate.seconds)[:NUM_IMPROVED]


def _fastest_below(found: list[MappedPlan], below_s: float) -> MappedPlan | None:
    best = min(found, key=lambda candidate: candidate.seconds, default=None)
    return best if best is not None and best.seconds < below_s else None
