"""The best walk over the device groups of a shape with two chunks bounds all of its cuts."""

import math
from collections import defaultdict
from dataclasses import replace

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.shapes import shapes_of
from stagecut.planner.solvers.interleaved.two_chunks import best_walk
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.catalogue import INTERLEAVED
from tests.property.strategies import problems

ROUNDING = 1e-9
"""Relative error allowed for sums of the same numbers in another order."""
FAMILIES = ("busy", "sync", "fill", "drain", "home")


def least_rows(problem, costs):
    """The least largest row of the plans of every variant and placement and number of device groups."""
    least_s = defaultdict(lambda: math.inf)
    for plan in all_plans(problem, costs):
        rows = bound_rows(costs.plan(plan))
        key = plan.variant, costs.of(plan.share).device_group(plan.stages[0]).placement, plan.num_groups
        least_s[key] = min(least_s[key], max(rows[name].max() for name in FAMILIES))
    return least_s


@settings(max_examples=60)
@given(problems(max_layers=7, interleaved=True), st.sampled_from((math.inf, 1.5)), st.sampled_from((1, 2, 16)))
def test_no_cut_has_smaller_rows_than_the_best_walk_unless_they_reach_the_limit(problem, times, most_labels):
    """Nor if labels are soon merged."""
    job = replace(problem.job, schedules=(Schedule.INTERLEAVED,), chunks=(2,))
    problem = replace(problem, job=job)
    costs = CostModel(problem)
    least_s = least_rows(problem, costs)
    assume(least_s)
    for variant in problem.variants:
        own = costs.of(variant.share)
        for shape in shapes_of(own, variant):
            least = least_s[variant, shape.placement, shape.num_groups]
            limit_s = math.inf if math.inf in (times, least) else times * least
            walk = best_walk(ChunkCosts(own, shape), limit_s, stop=lambda: False, most_labels=most_labels)
            assert walk.bound_s <= least * (1 + ROUNDING)
            assert walk.stops is None or len(walk.stops) == shape.num_stages


def test_walks_that_would_not_fit_into_memory_are_not_begun():
    costs = CostModel(INTERLEAVED.problem)
    shape = next(shapes_of(costs, INTERLEAVED.problem.variants[0]))
    assert best_walk(ChunkCosts(costs, shape), math.inf, stop=lambda: False, most_labels=10**9) is None
