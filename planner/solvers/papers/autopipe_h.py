"""AutoPipe-H: stages on unlike servers, with a device mapping that avoids contended links.

"AutoPipe-H: A Heterogeneity-Aware Data-Paralleled Pipeline Approach on Commodity GPU Servers", IEEE
Transactions on Computers 74(4), 2025, doi 10.1109/TC.2024.3517748. Only the abstract of this paper is known
here: a pipeline partitioner balances sub-blocks over the stages, a device mapping assigns stages to
devices so that heterogeneous servers are used well and communication contends less, and a runtime
shortens the start-up by splitting micro-batches. The partitioner is that of
:mod:`stagecut.planner.solvers.papers.autopipe_partition`. **The device mapping below is ours**, built to match
these words.

1. *Shapes.* For every number of pipelines, micro-batch size, replica count and tensor parallel degree
   that the job allows, stages take equal groups of devices: from all devices of a host for one stage, with
   replicas inside a server and activations crossing interfaces, to one device for each stage and a
   pipeline for each server, where activations stay inside and gradients cross. Servers come in every
   order or, where there are too many orders, grouped by class.
2. *Partition.* Layers are balanced using their times on the actual devices.
3. *Rank.* The largest lower bound of the iteration time: the link-load rows of
   :mod:`stagecut.planner.solvers.papers.autopipe_mapping.link_loads` and the rows of
   :mod:`stagecut.planner.simulator.bounds`.
4. *Simulation*, including queues for links, of the best of each variant, in AutoPipe's partition as well.
5. *Improvement.* In the fastest ones two servers are exchanged, one is left out, an idle one is put in, or
   one gets another shape, as long as the simulated time falls.
6. *Program.* For their partitions the mixed-integer program of
   :mod:`stagecut.planner.solvers.papers.autopipe_mapping.program` finds the mapping with the least bound; the
   layers are balanced anew, and so on while the simulated time falls.

The plan with the least simulated time of the heuristic (1 - 5) and the program (6) is returned.

Approximated here: everything the abstract does not say. AutoPipe's partition is made for at most 2 S
micro-batches on S stages, as in its published planner. All stages of a shape, and of a host, have the same
replicas and degree; the schedule is 1F1B. Memory is respected from the start, whereas the published planner of
AutoPipe ignores it. Docs: docs/papers/autopipe-h.md.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.core.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.tolerances import AUTOPIPE_H_LEAST_GAIN
from stagecut.planner.network.arrangement import assemble
from stagecut.planner.solvers.heuristic.candidates import CandidateSearch
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.papers.autopipe_mapping.evaluation import Evaluator
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import (
    DeviceMapping,
    neighbours,
    num_stages,
    placed_stages,
    start_mappings,
)
from stagecut.planner.solvers.papers.autopipe_mapping.program import MappingProgram
from stagecut.planner.solvers.papers.autopipe_partition.partition import partition
from stagecut.planner.solvers.papers.autopipe_partition.time import StageTimes
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "autopipe-h"
NUM_SIMULATED, WORTH_SIMULATING = 3, 1.03
"""Mappings of each variant that are simulated, none of them with a bound above this times the best time."""
NUM_IMPROVED = 3
"""Mappings that are improved, of all variants together."""
MOST_NEIGHBOURS = 200
"""Neighbours of a mapping that are ranked in one step."""
MOST_STAGES = 64
"""AutoPipe's search and the program are skipped for longer pipelines."""
PROGRAM_SHARE = 0.2
"""Share of the time left that one program may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mapping with layers."""

    variant: Variant
    mapping: DeviceMapping
    stops: tuple[int, ...]
    plan: Plan
    rank_s: float
    """Lower bound of the iteration time."""
    seconds: float = float("inf")
    """Simulated iteration time, once known."""


def solve(problem: Problem, search: Search) -> Result:
    """The best plan of heuristic and program; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    _MappingSearch(problem, Evaluator(search)).run()
    return search.result(NAME, proves=False)


def contention_blind(problem: Problem, search: Search) -> Result:
    """The same search as if no two flows ever shared a link; its plan is then simulated as it is.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    evaluator = Evaluator(search, blind=True)
    _MappingSearch(problem, evaluator).run()
    if evaluator.best is not None:
        search.offer([evaluator.best], OwnObjective(name="time without contention, s", value=evaluator.best_s))
    return search.result(f"{NAME}, contention-blind", proves=False)


class _MappingSearch:
    """One run of the search."""

    def __init__(self, problem: Problem, evaluator: Evaluator) -> None:
        require_schedules(problem, NAME, (Schedule.ONE_F_ONE_B,))
        self._problem, self._evaluator, self._search = problem, evaluator, evaluator.search

    def run(self) -> None:
        """Heuristic first, then the program for what it found."""
        with self._search.step("mappings"):
            found = self._heuristic()
        with self._search.step("mapping programs"):
            for best in found:
                while (better := self._program_step(best)) is not None:
                    best = better

    def _heuristic(self) -> list[Candidate]:
        """The best mappings, improved; the fastest first."""
        found = list[Candidate]()
        for variant in self._variants():
            starts = sorted(self._starts(variant), key=lambda candidate: candidate.rank_s)[:NUM_SIMULATED]
            found += self._simulated_in_both_partitions(starts, WORTH_SIMULATING * self._evaluator.best_s)
            found = _fastest(found)
        return _fastest([self._improved(candidate) for candidate in found])

    def _variants(self) -> Iterator[Variant]:
        """Those that might beat the best plan so far, the most promising first."""
        sketcher = CandidateSearch(self._evaluator.tables)
        variants = [variant for variant in self._problem.variants if variant.schedule is Schedule.ONE_F_ONE_B]
        for variant in sorted(variants, key=sketcher.floor_s):
            if self._search.out_of_budget or sketcher.floor_s(variant) >= self._evaluator.best_s:
                return
            yield variant

    def _starts(self, variant: Variant) -> Iterator[Candidate]:
        cluster = self._evaluator.costs.of(variant.share).cluster
        for mapping in start_mappings(self._problem, cluster, variant.micro_batch):
            if self._evaluator.must_stop:
                return
            yield from self._balanced(variant, mapping)

    def _balanced(self, variant: Variant, mapping: DeviceMapping) -> Iterator[Candidate]:
        """The mapping with balanced stages, if some fit in memory."""
        stages = self._stages(variant, mapping)
        stops = min_max_stops(stages)
        if stops is not None:
            yield from self._candidate(mapping, stages, stops)

    def _as_autopipe(self, start: Candidate) -> Iterator[Candidate]:
        """The same mapping in AutoPipe's partition, if that is another one and fits in memory."""
        stages = self._stages(start.variant, start.mapping)
        if self._search.out_of_budget or stages.num_stages > MOST_STAGES:
            return
        times = StageTimes(forward_s=stages.forward_s, backward_s=stages.backward_s, transfer_s=stages.transfer_s)
        stops = partition(times, min(start.variant.num_microbatches, 2 * stages.num_stages)).stops
        if tuple(stops.tolist()) != start.stops:
            yield from self._candidate(start.mapping, stages, stops)

    def _stages(self, variant: Variant, mapping: DeviceMapping) -> SequenceCosts:
        return SequenceCosts(self._evaluator.tables, variant, placed_stages(mapping))

    def _candidate(self, mapping: DeviceMapping, stages: SequenceCosts, stops: Ints) -> Iterator[Candidate]:
        variant = stages.variant
        plan = assemble(self._evaluator.costs.of(variant.share), variant, stages.arrangement(stops))
        self._search.count("mappings ranked")
        if plan is not None:
            rank_s = self._evaluator.rank_s(plan)
            yield Candidate(variant=variant, mapping=mapping, stops=tuple(stops.tolist()), plan=plan, rank_s=rank_s)

    def _simulated_in_both_partitions(self, candidates: list[Candidate], below_s: float) -> list[Candidate]:
        """Those that might take less than so long, each in AutoPipe's partition too."""
        promising = (candidate for candidate in candidates if candidate.rank_s < below_s)
        return self._simulated([c for start in promising for c in (start, *self._as_autopipe(start))], below_s)

    def _simulated(self, candidates: list[Candidate], below_s: float) -> list[Candidate]:
        """Those that might take less than so long, with their times."""
        found = list[Candidate]()
        for candidate in candidates:
            if self._evaluator.must_stop:
                break
            if candidate.rank_s < below_s:
                (seconds,) = self._evaluator.times_s([candidate.plan])
                found.append(replace(candidate, seconds=seconds))
        return found

    def _improved(self, candidate: Candidate) -> Candidate:
        """Move to better neighbours while there are any."""
        while (better := self._better_neighbour(candidate)) is not None:
            candidate = better
        return candidate

    def _better_neighbour(self, candidate: Candidate) -> Candidate | None:
        below_s = candidate.seconds * (1 - AUTOPIPE_H_LEAST_GAIN)
        near = sorted(self._neighbours(candidate), key=lambda neighbour: neighbour.rank_s)[:NUM_SIMULATED]
        return _fastest_below(self._simulated_in_both_partitions(near, below_s), below_s)

    def _neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        variant = candidate.variant
        cluster = self._evaluator.costs.of(variant.share).cluster
        mappings = neighbours(self._problem, cluster, candidate.mapping, variant.micro_batch)
        for mapping in itertools.islice(mappings, MOST_NEIGHBOURS):
            if self._search.out_of_budget:
                return
            yield from self._balanced(variant, mapping)

    def _program_step(self, candidate: Candidate) -> Candidate | None:
        """The mapping by program, the layers as they were or balanced anew; None if that is no faster."""
        variant, stops = candidate.variant, candidate.stops
        if self._search.out_of_budget or num_stages(candidate.mapping) > MOST_STAGES:
            return None
        costs, loads = self._evaluator.costs.of(variant.share), not self._evaluator.blind
        program = MappingProgram(costs, variant, candidate.mapping, stops, loads=loads)
        self._search.count("programs solved")
        mapping = program.solve(self._search, PROGRAM_SHARE * self._search.seconds_left)
        if mapping is None:
            return None
        new = [*self._candidate(mapping, self._stages(variant, mapping), np.array(stops))]
        new += self._balanced(variant, mapping)
        new += [each for start in new[:1] for each in self._as_autopipe(start)]
        below_s = candidate.seconds * (1 - AUTOPIPE_H_LEAST_GAIN)
        return _fastest_below(self._simulated(new, candidate.seconds), below_s)


def _fastest(found: list[Candidate]) -> list[Candidate]:
    """As many as are worth improving."""
    return sorted(found, key=lambda candidate: candidate.seconds)[:NUM_IMPROVED]


def _fastest_below(found: list[Candidate], below_s: float) -> Candidate | None:
    best = min(found, key=lambda candidate: candidate.seconds, default=None)
    return best if best is not None and best.seconds < below_s else None
