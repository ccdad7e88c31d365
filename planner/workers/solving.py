"""The entry: a plan of virtual workers for a job that trains through waves."""

import math
from collections.abc import Sequence
from typing import Unpack

import numpy as np

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.waves import Allocation, LocalStep
from stagecut.planner.solvers.search.budget import RunLimits
from stagecut.planner.solvers.search.interruption import interruptible
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.building import Seats
from stagecut.planner.workers.fixed_allocation import plan_allocation
from stagecut.planner.workers.fluid import fluid_bound
from stagecut.planner.workers.optimal import OptimalAllocation
from stagecut.planner.workers.policies import seats_by_policy
from stagecut.planner.workers.proportional import best_proportional, plan_proportional
from stagecut.planner.workers.reasons import reason
from stagecut.planner.workers.rows.chains import Chains
from stagecut.planner.workers.rows.kinds import Counts, Kinds, Lattice
from stagecut.planner.workers.rows.row_tables import RowTables
from stagecut.planner.workers.wave_search import WaveObserver, WaveSearch

MOST_PATTERNS = 2000
"""A chain program takes a tenth of a second with the 624 of hetpipe-16, and hundreds are solved."""
MOST_PATTERNS_OF_POLICY = 50_000
"""Parts of one worker, beyond which the workers of a policy are not planned."""
POLICIES = (Allocation.EQUAL_DISTRIBUTION, Allocation.HYBRID, Allocation.NODE_PARTITION)
"""Those first that are better where devices are unlike, so that less of the others is looked at."""


def solve_waves(
    problem: Problem, options: SolveOptions, *, observer: WaveObserver | None = None, **limits: Unpack[RunLimits]
) -> WaveResult:
    """Plan the virtual workers of a job with `waves`, by its allocation.

    Whatever ends the search, the result has the best plan and bound found by then.

    Parameters
    ----------
    observer
        Called with every improvement of plan or bound.
    limits
        See :class:`stagecut.planner.solvers.search.budget.RunLimits`.

    Raises
    ------
    BadInputError
        If the job does not train through waves, if its policy makes another number of workers than it asks for, or if
        the options ask for something that this system does not have.
    """
    choices = problem.job.waves
    require(choices is not None, "job", "waves", "given", None)
    assert choices is not None
    both = choices.proportional and choices.local_step is LocalStep.WAVE
    rule = f"{AUTO} where faster workers make longer waves of one step each: they share the batch"
    require(not both or choices.in_flight == AUTO, "job", "in_flight", rule, choices.in_flight)
    search = WaveSearch(problem, options, observer=observer, **limits)

    def work() -> None:
        tables, patterns = RowTables(problem, Kinds(problem)), None
        if choices.allocation is Allocation.OPTIMAL:
            _best_allocation(search, tables)
        else:
            patterns = _by_policy(search, tables, choices.allocation)
        if search.best_plan is None and search.bound <= 0:
            search.reason = reason(tables, patterns)

    with search.surviving():
        interruptible(work, search.patience_s)
    return search.result(f"waves-{choices.allocation}")


def _by_policy(search: WaveSearch, tables: RowTables, policy: Allocation) -> list[Counts]:
    """Play the plans of a policy; the patterns of its workers."""
    seats, wanted = seats_by_policy(tables, policy), search.num_workers
    rule = f"{AUTO} or {len(seats)}, which is what allocation {policy} makes of this cluster"
    require(wanted in (None, len(seats)), "job", "num_workers", rule, wanted)
    search.lower_bound_to(_on_seats(search, tables, seats))
    return [tuple(map(len, own)) for own in seats]


def _on_seats(search: WaveSearch, tables: RowTables, seats: Sequence[Seats]) -> float:
    """Play plans of workers on these devices; no such plan has more samples per second than what is returned."""
    patterns = [tuple(map(len, own)) for own in seats]
    most, largest = max(map(sum, patterns)), np.max(patterns, axis=0)
    if most > tables.num_layers:
        return 0.0
    if math.prod(largest + 1) > MOST_PATTERNS_OF_POLICY:
        return math.inf
    chains = Chains(tables, Lattice(largest, most))
    plan = plan_proportional if tables.choices.proportional else plan_allocation
    return plan(search, chains, seats)


def _best_allocation(search: WaveSearch, tables: RowTables) -> None:
    """Policies first, so that none of them is better than the answer."""
    search.lower_bound_to(fluid_bound(search, tables))
    for policy in POLICIES:
        seats = seats_by_policy(tables, policy)
        if search.num_workers in (None, len(seats)):
            _on_seats(search, tables, seats)
    chains = Chains(tables, _lattice(tables))
    if tables.choices.proportional:
        best_proportional(search, chains)
    else:
        OptimalAllocation(search, chains).run()


def _lattice(tables: RowTables) -> Lattice:
    """The patterns of the search space: of as many devices as keep their number within `MOST_PATTERNS`."""
    counts, most = tables.kinds.counts, 1
    largest = min(int(counts.sum()), tables.num_layers)
    while most < largest and math.comb(most + 1 + len(counts), len(counts)) <= MOST_PATTERNS:
        most += 1
    return Lattice(counts, largest if math.prod(counts + 1) <= MOST_PATTERNS else most)
