"""The entry: a plan of virtual workers for a job that trains through waves."""

from typing import Unpack

from stagecut.planner.core.checks import require
from stagecut.planner.core.job import AUTO
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.wave_result import WaveResult
from stagecut.planner.core.waves import Allocation
from stagecut.planner.solvers.search.budget import RunLimits
from stagecut.planner.solvers.search.interruption import interruptible
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.chains import Chains
from stagecut.planner.workers.fixed_allocation import plan_allocation
from stagecut.planner.workers.fluid import fluid_bound
from stagecut.planner.workers.kinds import Kinds, Lattice
from stagecut.planner.workers.optimal import OptimalAllocation
from stagecut.planner.workers.policies import seats_by_policy
from stagecut.planner.workers.rows import RowTables
from stagecut.planner.workers.wave_search import WaveObserver, WaveSearch

POLICIES = (Allocation.NODE_PARTITION, Allocation.EQUAL_DISTRIBUTION, Allocation.HYBRID)


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
    search = WaveSearch(problem, options, observer=observer, **limits)

    def work() -> None:
        tables = RowTables(problem, Kinds(problem))
        if choices.allocation is Allocation.OPTIMAL:
            _best_allocation(search, tables)
        else:
            search.lower_bound_to(_by_policy(search, tables, choices.allocation))

    with search.surviving():
        interruptible(work, search.patience_s)
    return search.result(f"waves-{choices.allocation}")


def _by_policy(search: WaveSearch, tables: RowTables, policy: Allocation) -> float:
    seats, wanted = seats_by_policy(tables, policy), tables.choices.num_workers
    rule = f"{AUTO} or {len(seats)}, which is what allocation {policy} makes of this cluster"
    require(wanted in (AUTO, len(seats)), "job", "num_workers", rule, wanted)
    return plan_allocation(search, tables, seats)


def _best_allocation(search: WaveSearch, tables: RowTables) -> None:
    """Policies first, so that none of them is better than the answer."""
    for policy in POLICIES:
        seats = seats_by_policy(tables, policy)
        if tables.choices.num_workers in (AUTO, len(seats)):
            plan_allocation(search, tables, seats)
    counts = tables.kinds.counts
    most = min(int(counts.sum()), tables.num_layers)
    OptimalAllocation(search, Chains(tables, Lattice(counts, most)), fluid_bound(search, tables)).run()
