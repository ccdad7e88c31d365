"""Pieces of work on several threads."""

import threading

import pytest

from stagecut.planner.solvers.search.budget import Budget
from stagecut.planner.solvers.search.crew import Crew
from stagecut.planner.solvers.search.interruption import OutOfBudget
from stagecut.planner.solvers.search.options import SolveOptions


def budget(**limits):
    return Budget(SolveOptions(time_limit_s=None), **limits)


def squares(crew, *, small):
    for number in range(10):
        crew.hand_out(lambda number=number: number**2, is_small=number in small)
    return [crew.next_result() for _ in range(10)]


@pytest.mark.parametrize("small", [(), (0, 3, 9), range(10)])
@pytest.mark.parametrize("jobs", [1, 2, 4])
def test_results_come_in_the_order_of_handing_out(jobs, small):
    with Crew(jobs, budget()) as crew:
        assert squares(crew, small=small) == [number**2 for number in range(10)]


@pytest.mark.parametrize(("small", "same"), [(True, True), (False, False)])
def test_the_caller_does_what_is_small(small, same):
    with Crew(2, budget()) as crew:
        crew.hand_out(threading.get_ident, is_small=small)
        assert (crew.next_result() == threading.get_ident()) is same


def test_one_job_needs_no_thread():
    with Crew(1, budget()) as crew:
        crew.hand_out(threading.get_ident)
        assert crew.next_result() == threading.get_ident()


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_the_work_raises_reaches_the_caller(jobs):
    with Crew(jobs, budget()) as crew, pytest.raises(ZeroDivisionError):
        crew.hand_out(lambda: 1 // 0)
        crew.next_result()


def test_work_that_never_looks_at_its_budget_is_interrupted():
    """It waits for a thread that loops for minutes, until it is told that the budget is spent."""
    cancelled, begun = threading.Event(), threading.Event()

    def busy():
        begun.set()
        for _ in range(10**10):
            pass

    with Crew(2, budget(cancelled=cancelled)) as crew:
        crew.hand_out(busy)
        assert begun.wait(60)
        cancelled.set()
        with pytest.raises(OutOfBudget):
            crew.next_result()


def test_what_is_under_way_at_the_end_is_abandoned():
    spent, begun = budget(), threading.Event()
    ended = threading.Event()

    def busy():
        begun.set()
        try:
            for _ in range(10**10):
                pass
        finally:
            ended.set()

    with Crew(2, spent) as crew:
        crew.hand_out(busy)
        assert begun.wait(60)
    assert spent.out_of_budget
    assert spent.stop_cause is None
    assert ended.wait(60)
