"""The only interface to HiGHS: programs go in as arrays, answers come out as arrays."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

import highspy
import numpy as np

from stagecut.planner.core.messages.errors import StagecutError
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import FEASIBILITY, INTEGRALITY
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.options import StopCheck


class SolveOutcome(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    INFEASIBLE = "infeasible"
    STOPPED = "stopped"


_OUTCOMES = {
    highspy.HighsModelStatus.kOptimal: SolveOutcome.OPTIMAL,
    highspy.HighsModelStatus.kInfeasible: SolveOutcome.INFEASIBLE,
    highspy.HighsModelStatus.kUnboundedOrInfeasible: SolveOutcome.INFEASIBLE,
    highspy.HighsModelStatus.kObjectiveBound: SolveOutcome.INFEASIBLE,
    highspy.HighsModelStatus.kTimeLimit: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kIterationLimit: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kSolutionLimit: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kInterrupt: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kMemoryLimit: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kObjectiveTarget: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kUnknown: SolveOutcome.STOPPED,
    highspy.HighsModelStatus.kSolveError: SolveOutcome.STOPPED,
}
"""Any other status means that the program itself was wrong."""
LONGEST_S = 1e7
"""The time limit that stands for none."""
EXACT = {
    "mip_feasibility_tolerance": INTEGRALITY,
    "primal_feasibility_tolerance": FEASIBILITY,
    "dual_feasibility_tolerance": FEASIBILITY,
}
"""Options of a program that is solved to its optimum."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearProgram:
    """Min cost x subject to row_lower <= A x <= row_upper, lower <= x <= upper, some x integer.

    A is given by its entries: `entry_row`, `entry_column`, `entry_value`, each pair at most once.
    """

    cost: Floats
    lower: Floats
    upper: Floats
    row_lower: Floats
    row_upper: Floats
    entry_row: Ints
    entry_column: Ints
    entry_value: Floats
    num_integer: int = 0
    """Columns that must be integer; they come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearAnswer:
    """Primal values and row duals of a linear program."""

    outcome: SolveOutcome
    objective: float
    columns: Floats
    row_duals: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class IntegerAnswer:
    """The best solution of a mixed-integer program and a bound on all of them."""

    outcome: SolveOutcome
    columns: Floats | None
    objective: float
    bound: float


class _Silent(highspy.Highs):
    """HiGHS 1.16 greets on stdout, once per process: when a first callback is set, as its constructor does."""

    def enableCallbacks(self) -> None:  # noqa: N802
        """Close the console before."""
        self.setOptionValue("log_to_console", False)
        super().enableCallbacks()  # type: ignore[no-untyped-call]


_Silent()  # type: ignore[no-untyped-call] # also on behalf of PuLP, which makes its own


def run_highs(highs: highspy.Highs, *, threads: int) -> None:
    """Run HiGHS on that many threads.

    HiGHS keeps its workers between runs from the same thread and refuses to run with a different number of them; the
    first run decides, by default on half of the cores. Releasing the previous workers first makes the result
    independent of the cores and of earlier calls.
    """
    _set_options(highs, {"threads": threads})
    highspy.Highs.resetGlobalScheduler(True)
    highs.run()


@uninterrupted()
def solve_linear(
    program: LinearProgram, *, time_limit_s: float = np.inf, stop: StopCheck | None = None
) -> LinearAnswer:
    """Solve a linear program by interior point without crossover, which gives central duals.

    Asking `stop`, hundreds of times in any run, takes as long as a small program itself.
    Runs on one thread, so that the duals, and all that follows from them, are the same everywhere.

    Raises
    ------
    StagecutError
        If HiGHS cannot use the program.
    """
    highs = _load(program, time_limit_s=time_limit_s, stop=stop)
    _set_options(highs, {"solver": "ipm", "run_crossover": "off"})
    run_highs(highs, threads=1)
    solution = highs.getSolution()
    return LinearAnswer(
        outcome=_outcome(highs),
        objective=float(highs.getInfo().objective_function_value),
        columns=np.array(solution.col_value),
        row_duals=np.array(solution.row_dual),
    )


@uninterrupted()
def solve_integer(
    program: LinearProgram,
    *,
    time_limit_s: float,
    stop: StopCheck,
    on_solution: Callable[[Floats], None],
    threads: int,
    seed: int,
    gap: float,
    max_nodes: int | None = None,
    start: Floats | None = None,
    on_bound: Callable[[float], None] | None = None,
) -> IntegerAnswer:
    """Solve a mixed-integer program by branch and cut.

    Parameters
    ----------
    on_solution
        Called during the solve with the columns of every improving solution.
    gap
        Relative gap at which to stop.
    max_nodes
        Stop after that many nodes of the tree; None: no limit.
    start
        Columns of a feasible solution to begin with.
    on_bound
        Called with the bound from time to time during the solve.

    Raises
    ------
    StagecutError
        If HiGHS cannot use the program.
    """
    highs = _load(program, time_limit_s=time_limit_s, stop=stop)
    options: dict[str, str | float] = {
        # With presolve HiGHS 1.15 calls a worse point optimal in about one of a thousand small programs.
        "presolve": "off",
        "mip_rel_gap": gap,
        "mip_abs_gap": 0.0,
        **EXACT,
        "random_seed": seed,
        "mip_max_nodes": 2**31 - 1 if max_nodes is None else max_nodes,
    }
    _set_options(highs, options)
    highs.cbMipImprovingSolution += lambda event: on_solution(np.array(event.data_out.mip_solution))
    if start is not None:
        known = highspy.HighsSolution()
        known.col_value = start.tolist()
        highs.setSolution(known)
    if on_bound is not None:
        highs.cbMipInterrupt += lambda event: on_bound(float(event.data_out.mip_dual_bound))
    run_highs(highs, threads=threads)
    outcome, info = _outcome(highs), highs.getInfo()
    # HiGHS rejected its own solution, so its bound cannot be trusted either.
    failed = highs.getModelStatus() == highspy.HighsModelStatus.kSolveError
    found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    if np.isposinf(info.mip_dual_bound) and not failed:
        # Some infeasible programs end as "optimal" with an infinite bound and a fractional point.
        return IntegerAnswer(outcome=SolveOutcome.INFEASIBLE, columns=None, objective=np.inf, bound=np.inf)
    return IntegerAnswer(
        outcome=outcome,
        columns=np.array(highs.getSolution().col_value) if found else None,
        objective=float(info.objective_function_value) if found else np.inf,
        bound=-np.inf if failed else float(info.mip_dual_bound),
    )


def _load(program: LinearProgram, *, time_limit_s: float, stop: StopCheck | None) -> highspy.Highs:
    highs = highspy.Highs()
    # Callbacks never fire while output_flag is off.
    _set_options(highs, {"log_to_console": False, "time_limit": float(min(time_limit_s, LONGEST_S))})
    if highs.passModel(_model(program)) == highspy.HighsStatus.kError:
        raise StagecutError("HiGHS rejects the program it was given")
    if stop is None:
        return highs

    def interrupt_if_asked(event: highspy.highs.HighsCallbackEvent) -> None:
        if stop():
            event.interrupt()

    for callback in (highs.cbMipInterrupt, highs.cbSimplexInterrupt, highs.cbIpmInterrupt):
        callback += interrupt_if_asked
    return highs


def _model(program: LinearProgram) -> highspy.HighsLp:
    by_column = np.lexsort((program.entry_row, program.entry_column))
    columns = program.entry_column[by_column]
    model = highspy.HighsLp()
    model.num_col_, model.num_row_ = len(program.cost), len(program.row_lower)
    model.col_cost_, model.col_lower_, model.col_upper_ = program.cost, program.lower, program.upper
    model.row_lower_, model.row_upper_ = program.row_lower, program.row_upper
    model.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    model.a_matrix_.start_ = np.searchsorted(columns, np.arange(len(program.cost) + 1)).astype(np.int32)
    model.a_matrix_.index_ = program.entry_row[by_column].astype(np.int32)
    model.a_matrix_.value_ = program.entry_value[by_column]
    if program.num_integer:
        kinds = [highspy.HighsVarType.kInteger] * program.num_integer
        model.integrality_ = kinds + [highspy.HighsVarType.kContinuous] * (len(program.cost) - program.num_integer)
    return model


def _set_options(highs: highspy.Highs, values: Mapping[str, str | float]) -> None:
    for name, value in values.items():
        if highs.setOptionValue(name, value) == highspy.HighsStatus.kError:
            raise StagecutError(f"HiGHS does not accept {value!r} for option {name}")


def _outcome(highs: highspy.Highs) -> SolveOutcome:
    status = highs.getModelStatus()
    if status not in _OUTCOMES:
        raise StagecutError(f"HiGHS cannot use the program it was given: {highs.modelStatusToString(status)}")
    return _OUTCOMES[status]
