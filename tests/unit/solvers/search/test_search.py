"""The running record of a search."""

import math
import threading
from dataclasses import replace

import pytest

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.messages.errors import BadInputError, FaultWarning, UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import OwnObjective, Status, StopCause
from stagecut.planner.solvers.reference.brute_force import all_plans
from stagecut.planner.solvers.search.interruption import OutOfBudget
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import chain, job, one_device_per_server

PROBLEM = Problem(model=chain(4, {"gpu": 2.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(4))
"""One stage takes 4 x 8 = 32 s. Cut at 2: 4 + 4 x 4 = 20. At 1, the last stage works 24 s, 1 s after and 1 s before
the first. At 3, the first stage works 24 s and never waits: 24."""
PLANS = sorted(all_plans(PROBLEM), key=lambda plan: len(plan.stages))
ON_FIRST, ON_SECOND = PLANS[:2]
CUT = {plan.stages[0].stop: plan for plan in PLANS[2:]}


def search(*, cancelled=None, observer=None, **options):
    return Search(PROBLEM, SolveOptions(**options), cancelled=cancelled, observer=observer)


def test_plans_are_simulated_in_order_and_the_best_is_kept():
    record = search()
    assert record.offer([ON_FIRST, CUT[2], CUT[1]]) == [32.0, 20.0, 26.0]
    assert (record.best_plan, record.best_s) == (CUT[2], 20.0)
    assert record.offer([CUT[3]]) == [24.0]
    assert record.best_plan == CUT[2]


def test_plans_are_tried_by_bound_until_none_can_be_faster():
    """Halves take 20 s, which is their bound too; the bounds of the others are at least 24 s."""
    record = search()
    record.offer_by_bound([ON_FIRST, *CUT.values()], lambda plan: OwnObjective(name="stages", value=len(plan.stages)))
    result = record.result("even", proves=False)
    assert (result.plan, dict(result.counts)) == (CUT[2], {"plans simulated": 1})
    assert result.own_objective == OwnObjective(name="stages", value=2)


def sliceable(**choices):
    """Micro-batches of two samples: a stage of two layers has F = B = 4, and the pipeline of two takes 5 x 8 = 40 s."""
    return replace(PROBLEM, job=job(4, micro_batch=2, action_overhead_s=0.0, **choices))


def halved(problem, *, num_sliced=0):
    """The plan cut in the middle."""
    plan = next(plan for plan in all_plans(problem) if plan.stages[0].stop == 2)
    return replace(plan, num_sliced=num_sliced)


@pytest.mark.parametrize(
    ("choice", "num_sliced", "seconds"), [(0, 0, 40.0), (1, 1, 38.0), (3, 3, 38.0), (AUTO, 1, 38.0)]
)
def test_plans_are_sliced_as_the_job_says(choice, num_sliced, seconds):
    """One halved micro-batch saves half of F = 4; more bring nothing. What a plan came with does not matter."""
    problem = sliceable(slice=choice)
    for given in (0, 2):
        record = Search(problem, SolveOptions())
        own = OwnObjective(name="seconds", value=1.0)
        assert record.offer([halved(problem, num_sliced=given)], own) == [seconds]
        assert (record.best_plan, record.best_s) == (halved(problem, num_sliced=num_sliced), seconds)
        assert record.result("even", proves=False).own_objective == own


def test_plans_that_cannot_become_the_best_are_not_tried_with_halves():
    """One stage on one device takes 64 s, the same in halves; known to be no better than 38 s, it keeps that time."""
    problem = sliceable(slice=AUTO)
    record = Search(problem, SolveOptions())
    single = next(plan for plan in all_plans(problem) if len(plan.stages) == 1)
    assert record.offer([halved(problem), single]) == [38.0, 64.0]
    assert record.best_s == 38.0


@pytest.mark.parametrize("choice", [2, AUTO])
def test_a_plan_known_from_elsewhere_is_sliced_anew(choice):
    problem = sliceable(slice=choice)
    record = Search(problem, SolveOptions())
    record.begin_from(halved(problem))
    assert record.best_s == 38.0
    assert record.best_plan == halved(problem, num_sliced=2 if choice == 2 else 1)


def test_first_of_equal_plans_is_kept():
    record = search()
    assert record.offer([ON_SECOND, ON_FIRST]) == [32.0, 32.0]
    assert record.best_plan == ON_SECOND


def test_bound_never_falls():
    record = search()
    for bound_s, known_s in ((5.0, 5.0), (3.0, 5.0), (7.0, 7.0)):
        record.raise_bound(bound_s)
        assert record.bound_s == known_s


def test_history_only_improves_and_is_observed():
    """One point for each improvement of plan or bound: 32, bound 5, 20, bound 8."""
    seen = []
    record = search(observer=seen.append)
    record.offer([ON_FIRST])
    record.raise_bound(5.0)
    record.raise_bound(4.0)
    record.offer([CUT[2], CUT[1]])
    record.raise_bound(8.0)
    history = record.result("milp", proves=True).history
    assert [(point.objective_s, point.bound_s) for point in history] == [
        (32.0, None),
        (32.0, 5.0),
        (20.0, 5.0),
        (20.0, 8.0),
    ]
    times = [point.seconds for point in history]
    assert times == sorted(times)
    assert times[0] >= 0
    assert tuple(seen) == history


def test_result_holds_what_is_known():
    record = search()
    record.offer([CUT[2]])
    record.raise_bound(16.0)
    record.count("decisions", 3)
    record.count("decisions")
    result = record.result("dp", proves=True, row_bound_s=16.0)
    assert (result.solver, result.plan, result.objective_s) == ("dp", CUT[2], 20.0)
    assert (result.bound_s, result.row_bound_s, result.gap) == (16.0, 16.0, pytest.approx(0.2))
    assert result.counts == (("decisions", 4), ("plans simulated", 1))
    assert 0 <= result.history[-1].seconds <= result.seconds
    assert result.shortages == ()


def test_bound_of_a_result_is_never_above_its_plan():
    """The bound on all plans not yet simulated may be above it."""
    record = search()
    record.offer([CUT[2]])
    record.raise_bound(math.inf)
    result = record.result("milp", proves=True)
    assert (result.bound_s, result.gap, result.status) == (20.0, 0.0, Status.OPTIMAL)


def test_solver_that_proves_nothing_has_no_bound():
    record = search()
    record.offer([CUT[2]])
    result = record.result("greedy", proves=False)
    assert (result.bound_s, result.gap, result.status) == (None, None, Status.FEASIBLE)


@pytest.mark.parametrize(
    ("offered", "bound_s", "cancelled", "exhausted", "status"),
    [
        (True, 20.0, False, True, Status.OPTIMAL),
        (True, 18.1, False, False, Status.OPTIMAL),
        (True, 17.9, False, False, Status.FEASIBLE),
        (True, 18.1, True, False, Status.OPTIMAL),
        (True, 17.9, True, False, Status.INTERRUPTED),
        (False, 18.0, True, False, Status.INTERRUPTED),
        (False, 18.0, False, False, Status.NO_PLAN),
        (False, math.inf, False, True, Status.INFEASIBLE),
        (False, math.inf, True, True, Status.INFEASIBLE),
    ],
)
def test_status_follows_from_plan_bound_and_budget(offered, bound_s, cancelled, exhausted, status):
    """The gap asked for is 10 %: 18 of 20 s."""
    event = threading.Event()
    record = search(gap=0.1, cancelled=event)
    if offered:
        record.offer([CUT[2]])
    record.raise_bound(bound_s)
    if cancelled:
        event.set()
    assert record.result("milp", proves=True, exhausted=exhausted).status is status


@pytest.mark.parametrize(
    ("options", "cancelled", "cause"),
    [
        ({}, False, None),
        ({"time_limit_s": 1e-9}, False, StopCause.TIME),
        ({"memory_limit_bytes": 1.0}, False, StopCause.MEMORY),
        ({"memory_limit_bytes": 1e15}, False, None),
        ({"memory_limit_bytes": 1.0, "time_limit_s": 1e-9}, True, StopCause.USER),
    ],
)
def test_result_says_what_ended_the_search(options, cancelled, cause):
    event = threading.Event()
    record = search(cancelled=event, **options)
    record.offer([CUT[2]])
    record.raise_bound(15.0)
    if cancelled:
        event.set()
    assert record.out_of_budget == (cause is not None)
    assert record.result("milp", proves=True).stopped_by is cause


def test_fault_ends_the_search_and_keeps_what_it_has():
    record = search()
    record.offer([CUT[2]])
    with pytest.warns(FaultWarning, match="the search ended early: ValueError: too bad"), record.surviving():
        record.raise_bound(15.0)
        raise ValueError("too\n  bad")
    result = record.result("milp", proves=True)
    assert record.out_of_budget
    assert (result.status, result.stopped_by) == (Status.FEASIBLE, StopCause.FAULT)
    assert (result.plan, result.bound_s) == (CUT[2], 15.0)
    assert result.fault.reason == "ValueError: too bad"
    assert "test_search.py" in result.fault.traceback


def test_first_fault_is_told_whatever_comes_of_it():
    record = search()
    for words in ("cause", "consequence"):
        with pytest.warns(FaultWarning), record.surviving():
            raise RuntimeError(words)
    assert record.result("milp", proves=True).fault.reason == "RuntimeError: cause"


def test_fault_after_the_proof_takes_nothing_from_it():
    record = search()
    with pytest.warns(FaultWarning), record.surviving():
        raise ValueError
    result = record.result("milp", proves=True, exhausted=True)
    assert (result.status, result.stopped_by, result.fault.reason) == (Status.INFEASIBLE, None, "ValueError")


@pytest.mark.parametrize("given", [BadInputError("no"), UnsupportedError("no"), KeyboardInterrupt()])
def test_what_the_user_gave_wrong_or_asked_for_goes_through(given):
    record = search()
    with pytest.raises(type(given)), record.surviving():
        raise given
    assert not record.out_of_budget


def test_interruption_inside_compiled_code_is_no_fault():
    """CPython puts a SystemError around what is raised where compiled code makes its results."""
    record = search()
    with pytest.raises(OutOfBudget), record.surviving():
        raise SystemError from OutOfBudget()
    assert record.result("milp", proves=True).fault is None


def test_faults_are_errors_in_the_tests():
    """Warnings of our own are, so that no test passes by with half a search; see pyproject.toml."""
    with pytest.raises(FaultWarning, match="ValueError"), search().surviving():
        raise ValueError


def test_search_that_was_done_was_not_stopped():
    record = search(time_limit_s=1e-9)
    record.offer([CUT[2]])
    record.raise_bound(20.0)
    assert record.result("milp", proves=True).stopped_by is None
    assert search(time_limit_s=1e-9).result("milp", proves=True, exhausted=True).stopped_by is None


def test_exceeded_memory_ends_side_searches_too():
    assert search(memory_limit_bytes=1.0).stop_after(1e6)()
    assert not search(memory_limit_bytes=1e15).stop_after(1e6)()


def test_legal_plan_is_a_beginning():
    record = search()
    record.begin_from(CUT[2])
    assert (record.best_plan, record.best_s) == (CUT[2], 20.0)


def test_illegal_plan_is_passed_over():
    """Five micro-batches where the job has four."""
    record = search()
    record.begin_from(replace(CUT[2], num_microbatches=5))
    assert record.best_plan is None


def test_gap_without_a_plan_is_infinite():
    assert search().gap == math.inf
    assert not search().closed


def test_budget_ends_with_the_time_limit():
    assert search(time_limit_s=1e-9).out_of_budget
    assert search(time_limit_s=1e-9).seconds_left == 0.0
    assert search(time_limit_s=None).seconds_left == math.inf
    assert not search(time_limit_s=None).out_of_budget


def test_a_search_is_to_stop_a_little_before_the_limit():
    """A tenth of it, and no more than a tenth of a second, so that it returns by the limit."""
    assert 999.0 < search(time_limit_s=1000.0).seconds_left <= 999.9
    assert search(time_limit_s=0.5).seconds_left <= 0.45
    assert search(time_limit_s=None).seconds_left == math.inf


def test_time_spent_before_a_search_counts():
    record = Search(PROBLEM, SolveOptions(time_limit_s=1000.0), spent_s=600.0)
    assert 399.0 < record.seconds_left <= 399.9
    assert Search(PROBLEM, SolveOptions(time_limit_s=1000.0), spent_s=1000.0).stop_cause is StopCause.TIME


@pytest.mark.parametrize(("answer_s", "left_s"), [(100.0, 899.9), (700.0, 499.9)])
def test_time_for_the_answer_is_kept_once_there_is_one(answer_s, left_s):
    """The time kept is what the caller asks for, but at most half of the limit."""
    record = Search(PROBLEM, SolveOptions(time_limit_s=1000.0), answer_s=lambda plan: answer_s)
    assert record.seconds_left > 999.0
    record.offer([ON_FIRST])
    assert left_s - 1 < record.seconds_left <= left_s


def test_patience_ends_with_the_limit():
    """There is no limit within the budget; then 0.1 s after a cancellation, and 0 s out of time or memory."""
    event = threading.Event()
    assert search(cancelled=event).patience_s() is None
    assert Search(PROBLEM, SolveOptions(time_limit_s=1000.0), spent_s=1001.0).patience_s() == 0.0
    assert search(memory_limit_bytes=1.0).patience_s() == 0.0
    event.set()
    assert search(cancelled=event).patience_s() == 0.1


def test_checks_of_steps_end_with_the_whole_budget():
    assert Search(PROBLEM, SolveOptions(time_limit_s=1.0), spent_s=1.0).stop_after(1000.0)()
    assert not search(time_limit_s=1000.0).stop_after(100.0)()
