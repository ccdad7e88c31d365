"""The fluid bound is above no plan of its variant."""

from collections import defaultdict
from unittest.mock import patch

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import fluid_bound as exact_fluid_bound
from stagecut.planner.solvers.exact.fluid_bound import fluid_bound, fluid_bounds
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.property.sharding.sharded_problems import sharded_problems
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
    at_once_s = dict(
        zip(problem.variants, fluid_bounds(CostModel(problem), problem.variants, at_once=True), strict=True)
    )
    assert all(at_once_s[variant] <= bounds_s[variant] for variant in problem.variants)
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


@settings(max_examples=50)
@given(problems(max_layers=6), st.integers(1, 4))
def test_programs_with_few_sorts_of_layers_give_bounds_too(problem, most_sorts):
    with patch.object(exact_fluid_bound, "MOST_SORTS", most_sorts):
        check(problem)


@settings(max_examples=30)
@given(problems(max_layers=6), st.sampled_from((1.0001, 1.5)))
def test_no_plan_below_a_limit_is_faster_than_the_bound_on_plans_with_one_of_its_stages(problem, times):
    """So a stage whose bound reaches the limit is of no use."""
    costs, fastest_s = CostModel(problem), fastest_by_variant(problem)
    assume(fastest_s)
    for plan in all_plans(problem, costs):
        own, number, limit_s = costs.of(plan.share), costs.plan(plan), times * fastest_s[plan.variant]
        seconds = iteration_times([number])[0]
        if seconds >= limit_s:
            continue
        bound = fluid_bound(costs, plan.variant, limit_s)
        for stage in plan.stages:
            placement = own.device_group(stage).placement
            interval = {"start": np.array([stage.start]), "stop": np.array([stage.stop])}
            stages = own.stages.stages(placement, micro_batch=plan.micro_batch, recompute=stage.recompute, **interval)
            islands = [len(server.islands) for server in own.cluster.servers]
            kind = sum(islands[: placement.server_class]) + placement.island
            num_devices = placement.replicas * placement.tensor_parallel
            through_s = bound.through_s(kind, num_devices, stages=stages, **interval)[0]
            assert through_s <= seconds * (1 + ROUNDING)


@settings(max_examples=30)
@given(problems(max_layers=6, max_devices=3, max_micro_batches=6, sliced=True))
def test_no_plan_with_halved_micro_batches_is_faster_either(problem):
    check(problem)


@settings(max_examples=30)
@given(sharded_problems(max_layers=3))
def test_no_plan_that_divides_operators_is_faster_either(problem):
    check(problem)
