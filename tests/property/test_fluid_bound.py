"""The fluid bound is above no plan of its variant."""

from collections import defaultdict

from hypothesis import assume, given, settings

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact.fluid_bound import fluid_bounds
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.property.strategies import problems

ROUNDING = 1e-9
"""Relative error allowed for sums of the same numbers in another order."""


def fastest_by_variant(problem):
    """The least simulated time of each variant that has plans, with any number of halved micro-batches."""
    costs, fastest_s = CostModel(problem), defaultdict(lambda: float("inf"))
    numbers = [costs.plan(plan) for plan in all_plans(problem, costs)]
    numbers += [own.sliced(n) for own in numbers if own.halves is not None for n in range(1, 1 + max(own.warmup_depth))]
    for own, seconds in zip(numbers, iteration_times(numbers), strict=True):
        fastest_s[own.variant] = min(fastest_s[own.variant], seconds)
    return fastest_s


def check(problem):
    """Check the bound of every variant that has plans."""
    fastest_s = fastest_by_variant(problem)
    assume(fastest_s)
    bounds_s = dict(zip(problem.variants, fluid_bounds(CostModel(problem), problem.variants), strict=True))
    too_high = {
        variant: bounds_s[variant]
        for variant, seconds in fastest_s.items()
        if bounds_s[variant] > seconds * (1 + ROUNDING)
    }
    assert too_high == {}


@settings(max_examples=100)
@given(problems(max_layers=6, interleaved=True))
def test_no_plan_is_faster_than_the_fluid_bound_of_its_variant(problem):
    """Replicas, tensor parallelism, ZeRO, recomputation, several pipelines, all schedules, measured tables."""
    check(problem)


@settings(max_examples=30)
@given(problems(max_layers=6, max_devices=3, max_micro_batches=6, sliced=True))
def test_no_plan_with_halved_micro_batches_is_faster_either(problem):
    check(problem)
