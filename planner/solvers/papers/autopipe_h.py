"""AutoPipe-H: stages of heterogeneous servers, with a device mapping that keeps off contended links.

"AutoPipe-H: A Heterogeneity-Aware Data-Paralleled Pipeline Approach on Commodity GPU Servers", IEEE
Transactions on Computers 74(4), 2025, doi 10.1109/TC.2024.3517748. Of this paper its abstract is known
here: a pipeline partitioner balances sub-blocks over the stages, a device mapping puts the stages on
devices so that heterogeneous servers are used well and communication contends less, and a runtime
shortens the start-up by splitting micro-batches. The partitioner is that of
:mod:`planner.solvers.papers.autopipe_steps.partition`. **The device mapping below is ours**, made to these words.

1. *Shapes.* For every number of pipelines, micro-batch size, replicas and degree of tensor
   parallelism that the job allows, stages take equal groups of devices: from one group for all of a
   host, so that replicas are inside a server and activations cross interfaces, to one device for
   each stage and a pipeline for each server, so that activations stay inside and gradients cross.
   Servers come in every order, or where these are too many in blocks of a class.
2. *Partition.* Layers are balanced with the times that the real devices take.
3. *Rank.* The largest lower bound of the iteration time, with the link-load rows of
   :mod:`planner.solvers.papers.autopipe_steps.mapping_links` beside the rows of :mod:`planner.simulator.bounds`.
4. *Simulation*, with its queues for links, of the best of each variant, in AutoPipe's partition too.
5. *Improvement.* The fastest are changed by exchanging two servers, leaving one out, putting an idle
   one in, or another shape of one, as long as the simulated time falls.
6. *Program.* For their partitions the mixed-integer program of :mod:`.autopipe_steps.mapping_program`
   finds the mapping with the least bound; the layers are balanced anew, and so on while that helps.

The best plan by simulation of the heuristic (1 - 5) and the program (6) is returned.

Approximated here: everything the abstract does not say. AutoPipe's partition is made for at most 2 S
micro-batches on S stages, as its published planner does. All stages of a shape, and of a host, have
the same replicas and degree; the schedule is 1F1B. What fits in memory is known from the start, which
the published planner of AutoPipe does not ask. Docs: docs/papers/autopipe-h.md.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Ints
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import OwnObjective, Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.heuristic.balance import balanced
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.sketches import Sketcher
from stagecut.planner.solvers.papers.autopipe_steps.mapping_judge import Judge
from stagecut.planner.solvers.papers.autopipe_steps.mapping_program import MappingProgram
from stagecut.planner.solvers.papers.autopipe_steps.mapping_shapes import (
    Mapping,
    neighbours,
    num_stages,
    seats_of,
    start_mappings,
)
from stagecut.planner.solvers.papers.autopipe_steps.partition import partition
from stagecut.planner.solvers.papers.autopipe_steps.time import StageTimes
from stagecut.planner.solvers.search.refusals import require_schedules
from stagecut.planner.solvers.search.search import Search

NAME = "autopipe-h"
NUM_SIMULATED, WORTH_SIMULATING = 3, 1.03
"""Mappings of each variant that are simulated, none with a bound above this times the best time."""
NUM_IMPROVED = 3
"""Of all variants together."""
MOST_NEIGHBOURS = 200
"""Of a mapping, in one step."""
MOST_ROUNDS = 20
"""Steps of one improvement."""
LEAST_GAIN = 1e-4
"""Relative, of a step."""
PARTITION_STAGES, PROGRAM_STAGES = 64, 64
"""AutoPipe's search, and the program, are for pipelines with no more stages."""
PROGRAM_SHARE = 0.2
"""Of the time left, for one program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A mapping with layers."""

    variant: Variant
    mapping: Mapping
    stops: tuple[int, ...]
    plan: Plan
    rank_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A candidate with its simulated iteration time."""

    seconds: float
    candidate: Candidate


def solve(problem: Problem, search: Search) -> Result:
    """The best plan of heuristic and program; proves nothing.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    _MappingSearch(problem, Judge(search)).run()
    return search.result(NAME, proves=False)


def contention_blind(problem: Problem, search: Search) -> Result:
    """The same search as if no two flows ever shared a link; its plan is then simulated as it is.

    Raises
    ------
    UnsupportedError
        If the job does not allow 1F1B.
    """
    judge = Judge(search, blind=True)
    _MappingSearch(problem, judge).run()
    if judge.best is not None:
        search.offer_with(judge.best, OwnObjective(name="time without contention, s", value=judge.best_s))
    return search.result(f"{NAME}, contention-blind", proves=False)


class _MappingSearch:
    """One run."""

    def __init__(self, problem: Problem, judge: Judge) -> None:
        require_schedules(problem, NAME, (Schedule.ONE_F_ONE_B,))
        self._problem, self._judge, self._search = problem, judge, judge.search

    def run(self) -> None:
        """All steps."""
        with self._search.step("mappings"):
            found = self._heuristic()
        with self._search.step("mapping programs"):
            for timed in found:
                self._program(timed)

    def _heuristic(self) -> list[Timed]:
        """The best mappings, improved; the fastest first."""
        found = list[Timed]()
        for variant in self._variants():
            starts = sorted(self._starts(variant), key=lambda candidate: candidate.rank_s)[:NUM_SIMULATED]
            below_s = WORTH_SIMULATING * self._judge.best_s
            found = _fastest([*found, *self._simulated(self._in_both_partitions(starts, below_s), below_s)])
        return _fastest([self._improved(timed) for timed in found])

    def _variants(self) -> Iterator[Variant]:
        """Those that might beat the best plan so far, the most promising first."""
        sketcher = Sketcher(self._judge.tables)
        mine = [variant for variant in self._problem.variants if variant.schedule is Schedule.ONE_F_ONE_B]
        for variant in sorted(mine, key=sketcher.floor_s):
            if self._search.out_of_budget or sketcher.floor_s(variant) >= self._judge.best_s:
                return
            yield variant

    def _starts(self, variant: Variant) -> Iterator[Candidate]:
        cluster = self._judge.costs.of(variant.share).cluster
        for mapping in start_mappings(self._problem, cluster, variant.micro_batch):
            if self._search.out_of_budget and self._judge.best is not None:
                return
            yield from self._balanced(variant, mapping)

    def _balanced(self, variant: Variant, mapping: Mapping) -> Iterator[Candidate]:
        """The mapping with balanced stages that fit in memory, if there are such."""
        seated = self._judge.seated(variant, seats_of(mapping))
        stops = balanced(seated)
        if stops is not None:
            yield from self._candidate(mapping, seated, stops)

    def _in_both_partitions(self, candidates: list[Candidate], below_s: float) -> list[Candidate]:
        """Those that might take less than so long, each in AutoPipe's partition too."""
        promising = (candidate for candidate in candidates if candidate.rank_s < below_s)
        return [each for candidate in promising for each in (candidate, *self._as_autopipe(candidate))]

    def _as_autopipe(self, start: Candidate) -> Iterator[Candidate]:
        """The same mapping in AutoPipe's partition, if that fits in memory."""
        seated = self._judge.seated(start.variant, seats_of(start.mapping))
        if self._search.out_of_budget or seated.num_stages > PARTITION_STAGES:
            return
        times = StageTimes(forward_s=seated.forward_s, backward_s=seated.backward_s, transfer_s=seated.transfer_s)
        stops = partition(times, min(start.variant.num_microbatches, 2 * seated.num_stages)).stops
        if tuple(stops.tolist()) != start.stops:
            yield from self._candidate(start.mapping, seated, stops)

    def _candidate(self, mapping: Mapping, seated: SeatedStages, stops: Ints) -> Iterator[Candidate]:
        plan = self._judge.plan(seated.variant, seated.layout(stops))
        self._search.count("mappings ranked")
        if plan is not None:
            rank_s = self._judge.rank_s(plan)
            yield Candidate(
                variant=seated.variant, mapping=mapping, stops=tuple(stops.tolist()), plan=plan, rank_s=rank_s
            )

    def _simulated(self, candidates: list[Candidate], below_s: float) -> list[Timed]:
        """Those that might take less than so long."""
        timed = list[Timed]()
        for candidate in candidates:
            if self._search.out_of_budget and self._judge.best is not None:
                break
            if candidate.rank_s < below_s:
                (seconds,) = self._judge.times([candidate.plan])
                timed.append(Timed(seconds=seconds, candidate=candidate))
        return timed

    def _improved(self, timed: Timed) -> Timed:
        """Steps to better neighbours while there are any."""
        for _ in range(MOST_ROUNDS):
            better = self._better_neighbour(timed)
            if better is None:
                break
            timed = better
        return timed

    def _better_neighbour(self, timed: Timed) -> Timed | None:
        below_s = timed.seconds * (1 - LEAST_GAIN)
        near = sorted(self._neighbours(timed.candidate), key=lambda candidate: candidate.rank_s)[:NUM_SIMULATED]
        found = self._simulated(self._in_both_partitions(near, below_s), below_s)
        best = min(found, key=lambda near: near.seconds, default=timed)
        return best if best.seconds < below_s else None

    def _neighbours(self, candidate: Candidate) -> Iterator[Candidate]:
        variant = candidate.variant
        cluster = self._judge.costs.of(variant.share).cluster
        mappings = neighbours(self._problem, cluster, candidate.mapping, variant.micro_batch)
        for mapping in itertools.islice(mappings, MOST_NEIGHBOURS):
            if self._search.out_of_budget:
                return
            yield from self._balanced(variant, mapping)

    def _program(self, timed: Timed) -> None:
        """Mapping by program and layers by balance, in turns, while the simulated time falls."""
        for _ in range(MOST_ROUNDS):
            if self._search.out_of_budget or num_stages(timed.candidate.mapping) > PROGRAM_STAGES:
                return
            better = self._program_step(timed)
            if better is None:
                return
            timed = better

    def _program_step(self, timed: Timed) -> Timed | None:
        variant, mapping, stops = timed.candidate.variant, timed.candidate.mapping, timed.candidate.stops
        costs = self._judge.costs.of(variant.share)
        program = MappingProgram(costs, variant, mapping, stops, loads=not self._judge.blind)
        self._search.count("programs solved")
        mapped = program.solve(self._search, PROGRAM_SHARE * self._search.seconds_left)
        if mapped is None:
            return None
        same_layers = list(self._candidate(mapped, self._judge.seated(variant, seats_of(mapped)), np.array(stops)))
        new = [*same_layers, *self._balanced(variant, mapped)]
        new += [each for start in new[:1] for each in self._as_autopipe(start)]
        best = min(self._simulated(new, timed.seconds), key=lambda near: near.seconds, default=timed)
        return best if best.seconds < timed.seconds * (1 - LEAST_GAIN) else None


def _fastest(found: list[Timed]) -> list[Timed]:
    """So many as are worth improving."""
    return sorted(found, key=lambda timed: timed.seconds)[:NUM_IMPROVED]
