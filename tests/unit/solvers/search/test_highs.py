"""The door to HiGHS: statuses, tiny programs, stopping."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import highspy
import numpy as np
import pytest

from stagecut.planner.core.messages.errors import StagecutError
from stagecut.planner.solvers.search.highs import (
    LinearProgram,
    SolveOutcome,
    _outcome,
    run_highs,
    solve_integer,
    solve_linear,
)

STATUS = highspy.HighsModelStatus
EXPECTED = {
    SolveOutcome.OPTIMAL: {STATUS.kOptimal},
    SolveOutcome.INFEASIBLE: {STATUS.kInfeasible, STATUS.kUnboundedOrInfeasible, STATUS.kObjectiveBound},
    SolveOutcome.STOPPED: {
        STATUS.kTimeLimit,
        STATUS.kIterationLimit,
        STATUS.kSolutionLimit,
        STATUS.kInterrupt,
        STATUS.kMemoryLimit,
        STATUS.kObjectiveTarget,
        STATUS.kUnknown,
        STATUS.kSolveError,
    },
}


class Ended:
    """A solver that has ended with a status."""

    def __init__(self, status):
        self._status = status

    def getModelStatus(self):  # noqa: N802
        return self._status

    def modelStatusToString(self, status):  # noqa: N802
        return f"status {status.name}"


@pytest.mark.parametrize("name", STATUS.__members__)
def test_every_status_is_one_of_ours_or_a_fault(name):
    status = STATUS.__members__[name]
    outcome = next((outcome for outcome, statuses in EXPECTED.items() if status in statuses), None)
    if outcome is None:
        with pytest.raises(StagecutError, match=f"HiGHS cannot use the program it was given: status {status.name}"):
            _outcome(Ended(status))
    else:
        assert _outcome(Ended(status)) is outcome


def program(*, num_integer=0, at_least=1.5, upper=1.0):
    """Min 2 x + 3 y, x + y >= 1.5, 0 <= x, y <= 1: x = 1, y = 0.5 costs 3.5; in whole numbers, 5."""
    return LinearProgram(
        cost=np.array([2.0, 3.0]),
        lower=np.zeros(2),
        upper=np.full(2, upper),
        row_lower=np.array([at_least]),
        row_upper=np.array([np.inf]),
        entry_row=np.array([0, 0]),
        entry_column=np.array([1, 0]),
        entry_value=np.array([1.0, 1.0]),
        num_integer=num_integer,
    )


def linear(chosen, **choices):
    return solve_linear(chosen, **({"time_limit_s": 60.0, "stop": lambda: False} | choices))


def integer(chosen, on_solution=lambda columns: None, **choices):
    settings = {"time_limit_s": 60.0, "stop": lambda: False, "threads": 1, "seed": 0, "gap": 0.0} | choices
    return solve_integer(chosen, on_solution=on_solution, **settings)


def test_linear_optimum_has_its_duals():
    """One more unit must be taken from y, at 3."""
    answer = linear(program())
    assert answer.outcome is SolveOutcome.OPTIMAL
    assert answer.objective == pytest.approx(3.5)
    assert answer.columns == pytest.approx([1.0, 0.5], abs=1e-6)
    assert answer.row_duals == pytest.approx([3.0], abs=1e-6)


def test_integer_optimum_is_bound_and_objective():
    answer = integer(program(num_integer=2))
    assert answer.outcome is SolveOutcome.OPTIMAL
    assert answer.columns == pytest.approx([1.0, 1.0])
    assert (answer.objective, answer.bound) == (pytest.approx(5.0), pytest.approx(5.0))


def test_only_the_first_columns_are_integer():
    answer = integer(program(num_integer=1))
    assert answer.columns == pytest.approx([1.0, 0.5])


@pytest.mark.parametrize("num_integer", [1, 2])
def test_infeasible_integer_program_has_no_columns(num_integer):
    answer = integer(program(num_integer=num_integer, at_least=2.5))
    assert (answer.outcome, answer.columns, answer.objective) == (SolveOutcome.INFEASIBLE, None, np.inf)


def test_infeasible_linear_program_is_told():
    assert linear(program(at_least=2.5)).outcome is SolveOutcome.INFEASIBLE


def test_unbounded_program_is_our_fault():
    unbounded = replace(program(upper=np.inf), cost=np.array([-1.0, 0.0]))
    with pytest.raises(StagecutError, match="cannot use the program"):
        linear(unbounded)


def test_programs_may_take_any_number_of_threads_in_turn():
    """HiGHS itself refuses to change it, also from the number that somebody else began with."""
    other = highspy.Highs()
    other.setOptionValue("output_flag", False)
    run_highs(other, threads=3)
    for threads in (2, 1, 4):
        assert integer(program(num_integer=2), threads=threads).objective == pytest.approx(5.0)
        assert linear(program()).objective == pytest.approx(3.5)


def test_callers_on_several_threads_have_numbers_of_their_own():
    def objectives(threads):
        return [integer(program(num_integer=2), threads=threads).objective for _ in range(20)]

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(objectives, (1, 2, 3))) == [[pytest.approx(5.0)] * 20] * 3


def test_option_that_highs_does_not_take_is_our_fault():
    with pytest.raises(StagecutError, match=r"HiGHS does not accept -1\.0 for option mip_rel_gap"):
        integer(program(num_integer=2), gap=-1.0)


def test_program_that_highs_refuses_is_our_fault():
    """One entry twice."""
    with pytest.raises(StagecutError, match="HiGHS rejects the program it was given"):
        linear(replace(program(), entry_column=np.array([0, 0])))


def test_solve_that_ended_in_error_proves_nothing(monkeypatch):
    """HiGHS found fault with its own solution; were its bound infinite, none would have been ruled out."""
    monkeypatch.setattr(highspy.Highs, "getModelStatus", lambda self: STATUS.kSolveError)
    for at_least in (1.5, 2.5):
        answer = integer(program(num_integer=2, at_least=at_least))
        assert (answer.outcome, answer.bound) == (SolveOutcome.STOPPED, -np.inf)


def knapsacks(size=40):
    """Equality knapsacks with random weights: far from solved at the root."""
    random = np.random.default_rng(0)
    weights = random.integers(1_000, 10_000, (3, size)).astype(float)
    rows, columns = np.indices(weights.shape)
    half = weights.sum(axis=1) / 2
    return LinearProgram(
        cost=random.integers(1, 100, size).astype(float),
        lower=np.zeros(size),
        upper=np.ones(size),
        row_lower=half - 20,
        row_upper=half + 20,
        entry_row=rows.ravel(),
        entry_column=columns.ravel(),
        entry_value=weights.ravel(),
        num_integer=size,
    )


def test_stop_check_ends_a_search():
    answer = integer(knapsacks(), stop=lambda: True)
    assert answer.outcome is SolveOutcome.STOPPED
    assert answer.bound <= answer.objective


def test_search_without_time_ends_without_an_answer():
    answer = integer(knapsacks(), time_limit_s=0.0)
    assert (answer.outcome, answer.columns) == (SolveOutcome.STOPPED, None)


def test_improving_solutions_are_handed_over():
    """The last one is the answer, and none is worse than the one before."""
    chosen, seen = replace(knapsacks(), row_upper=np.full(3, np.inf)), []
    answer = integer(chosen, seen.append, gap=0.05)
    costs = [float(chosen.cost @ columns) for columns in seen]
    assert costs == sorted(costs, reverse=True)
    assert costs[-1] == pytest.approx(answer.objective)
    assert answer.objective - answer.bound <= 0.05 * answer.objective
