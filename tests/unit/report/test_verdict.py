"""The answer in one sentence."""

import math
from dataclasses import replace

import pytest

from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.result import Result, Shortage, Status, StopCause
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.time_basis import Basis, TimeBasis
from stagecut.planner.report.verdict import rounded_up_percent, speed_against_even_split, verdict

STAGE = Stage(start=0, stop=2, devices=("a/0",), warmup_depth=1, forward_micro_batch=1, backward_micro_batch=1)
PLAN = Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=1, num_microbatches=4, pipelines=(Pipeline(stages=(STAGE,)),))
SHORTAGES = tuple(
    Shortage(device_type=name, layers=(3, 5), needed_bytes=needed, limit_bytes=6e9, remedy="recompute")
    for name, needed in (("small", 9e9), ("smaller", 7.5e9))
)


def _found(status: Status, *, objective_s: float = 0.1, bound_s: float | None = 0.1) -> Result:
    return Result(status=status, solver="milp", seconds=1.0, plan=PLAN, objective_s=objective_s, bound_s=bound_s)


def test_closed_gap_is_proven_optimal():
    assert verdict(_found(Status.OPTIMAL)) == "100 ms per iteration, proven optimal"


def test_gap_within_the_tolerance_is_stated():
    """(0.1 - 0.099995) / 0.1 = 0.005 %."""
    assert verdict(_found(Status.OPTIMAL, bound_s=0.099995)).endswith("proven optimal up to 0.005 %")


def test_gap_above_the_tolerance_by_rounding_only_is_within_it():
    """A bound of T (1 - 1e-4) gives a gap of 1e-4 and a few units in the last place."""
    assert verdict(_found(Status.OPTIMAL, bound_s=0.1 * (1 - 1e-4 - 1e-15))).endswith("proven optimal up to 0.01 %")


def test_optimal_under_a_loose_tolerance_is_not_called_optimal():
    """A caller who asks for a gap of 5 % gets status optimal with 4 %: true, but no proof of optimality."""
    assert verdict(_found(Status.OPTIMAL, bound_s=0.096)).endswith("within 4 % of optimal")


def test_feasible_plan_with_a_closed_gap_is_not_called_optimal():
    assert verdict(_found(Status.FEASIBLE)).endswith("within 0 % of optimal")


def test_speed_against_an_even_split_is_added():
    sentence = verdict(_found(Status.FEASIBLE, bound_s=0.0996), even_split_s=0.142)
    assert sentence == "100 ms per iteration, within 0.4 % of optimal; 1.42x faster than an even split"


def test_plan_without_bound_says_so():
    assert verdict(_found(Status.FEASIBLE, bound_s=None)).endswith("without a proof of how good that is")


@pytest.mark.parametrize(
    ("kinds", "words"),
    [
        ((Basis.MEASURED, Basis.MEASURED, Basis.MEASURED), "layer times measured"),
        ((Basis.ESTIMATED, Basis.ESTIMATED, Basis.ESTIMATED), "layer times estimated"),
        (
            (Basis.MEASURED, Basis.ESTIMATED, Basis.BOTH),
            "layer times measured on a, estimated on b, partly measured on c",
        ),
    ],
)
def test_what_times_rest_on_is_said(kinds, words):
    basis = TimeBasis(by_device_type=tuple(zip("abc", kinds, strict=True)), unused=())
    assert verdict(_found(Status.OPTIMAL), basis=basis) == f"100 ms per iteration, proven optimal; {words}"


def test_interrupted_search_keeps_its_plan():
    assert verdict(_found(Status.INTERRUPTED, bound_s=0.05)).startswith("interrupted: 100 ms per iteration")


def test_limit_that_ended_the_search_is_told():
    stopped = replace(_found(Status.FEASIBLE, bound_s=0.05), stopped_by=StopCause.MEMORY)
    assert verdict(stopped) == "100 ms per iteration, within 50 % of optimal when the memory limit was reached"
    nothing = Result(status=Status.NO_PLAN, solver="dp", seconds=1.0, stopped_by=StopCause.TIME)
    assert verdict(nothing) == "no plan yet when the time limit was reached, and no proof that there is none"
    failed = "no plan yet when an internal fault ended the search, and no proof that there is none"
    assert verdict(replace(nothing, stopped_by=StopCause.FAULT)) == failed
    assert verdict(replace(nothing, stopped_by=None)) == "no plan found, and no proof that there is none"


def test_interruption_before_a_plan_says_that_there_is_none_yet():
    nothing = Result(status=Status.INTERRUPTED, solver="dp", seconds=1.0, stopped_by=StopCause.USER)
    assert verdict(nothing) == "interrupted: no plan yet, and no proof that there is none"


def test_infeasible_names_the_largest_shortage():
    """9 - 6 = 3 GB on the first type, 1.5 GB on the second."""
    result = Result(status=Status.INFEASIBLE, solver="dp", seconds=0.1, shortages=SHORTAGES)
    sentence = verdict(result)
    assert "layers 3-4 on small lack 3 GB (1 other stage lacks memory too)" in sentence
    assert sentence.endswith("Suggested fix: recompute")


@pytest.mark.parametrize("status", [Status.INFEASIBLE, Status.NO_PLAN, Status.INTERRUPTED])
def test_every_status_without_a_plan_has_a_sentence(status):
    assert verdict(Result(status=status, solver="dp", seconds=0.1))


@pytest.mark.parametrize(
    ("even_split_s", "words"),
    [
        (math.inf, "an even split does not fit in memory"),
        (2.003, "as fast as an even split"),
        (3.0, "1.50x faster than an even split"),
        (1.6, "1.25x slower than an even split"),
    ],
)
def test_even_split_is_put_into_words(even_split_s, words):
    assert speed_against_even_split(2.0, even_split_s) == words


@pytest.mark.parametrize(
    ("share", "words"),
    [(0.0, "0 %"), (0.004, "0.4 %"), (0.00401, "0.41 %"), (0.1, "10 %"), (0.999, "100 %"), (1e-12, "1e-10 %")],
)
def test_percentages_are_rounded_up(share, words):
    assert rounded_up_percent(share) == words
