"""No plan of any schedule is simulated faster than its lower bound."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.pipelines import pipeline_costs, random_costs, random_hosts, random_interleaved, random_routes
from tests.property.strategies import problems

ROUNDING = 1e-9
"""Relative error allowed for sums of the same numbers in another order."""


@settings(max_examples=60)
@given(problems())
def test_no_plan_is_faster_than_any_row(problem):
    """Every plan of problems with replicas, shared links, recomputation, all-reduces and optimizer steps."""
    costs = CostModel(problem)
    plans = list(all_plans(problem, costs))
    assume(plans)
    numbers = [costs.plan(plan) for plan in plans]
    for plan, number, seconds in zip(plans, numbers, iteration_times(numbers), strict=True):
        too_high = {
            family: values.max()
            for family, values in bound_rows(number).items()
            if len(values) and values.max() > seconds * (1 + ROUNDING)
        }
        assert too_high == {}, f"{plan} takes {seconds} s"


PLAIN = st.sampled_from([Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B])
STYLES = st.sampled_from(["real", "whole", "rare"])


@settings(max_examples=400)
@given(seed=st.integers(0, 2**32 - 1), schedule=PLAIN, names=st.integers(1, 4), style=STYLES)
def test_no_plan_whose_links_are_shared_at_random_is_faster_than_any_row(seed, schedule, names, style):
    """Up to eight stages; all-reduces are long, so that gradients wait for them, and some tasks take no time."""
    random = np.random.default_rng(seed)
    routes = random_routes(random, 3 * int(random.integers(1, 9)) - 2, names=names)
    costs = random_costs(random, routes, schedule=schedule, micro_batches=int(random.integers(1, 9)), style=style)
    costs = replace(costs, sync_s=costs.sync_s * random.integers(1, 10))
    seconds = iteration_times([costs])[0]
    highest = {family: max(values, default=0.0) for family, values in bound_rows(costs).items()}
    assert {family: row for family, row in highest.items() if row > seconds * (1 + ROUNDING)} == {}


@settings(max_examples=300)
@given(seed=st.integers(0, 2**32 - 1), names=st.sampled_from([0, 0, 2, 5]), style=STYLES, on_hosts=st.booleans())
def test_no_interleaved_plan_is_faster_than_any_row(seed, names, style, on_hosts):
    """Up to five device groups with up to four chunks, with and without shared links."""
    rng = np.random.default_rng(seed)
    costs = random_interleaved(rng, names=names, style=style)
    costs = random_hosts(rng, costs) if on_hosts else costs
    seconds = iteration_times([costs])[0]
    highest = {family: max(values, default=0.0) for family, values in bound_rows(costs).items()}
    assert {family: row for family, row in highest.items() if row > seconds * (1 + ROUNDING)} == {}


@pytest.mark.parametrize(
    ("devices", "chunks", "micro_batches"), [(1, 2, 3), (2, 2, 4), (4, 2, 8), (4, 3, 4), (3, 4, 9)]
)
def test_the_busy_row_of_equal_chunks_is_the_simulated_time(devices, chunks, micro_batches):
    """M v (F + B) + (D - 1) (F + B) without transfers."""
    stages = devices * chunks
    costs = pipeline_costs(
        [1] * stages, [2] * stages, micro_batches=micro_batches, schedule=Schedule.INTERLEAVED, chunks=chunks
    )
    assert bound_rows(costs)["busy"].max() == iteration_times([costs])[0]
