"""Stages left out before they become arcs belong to no plan at or below the limit."""

import itertools

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.job import AUTO
from stagecut.planner.core.numerics.tolerances import PATH_SUM
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.interval_network import build_intervals
from stagecut.planner.network.pruning import arc_prices
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.slicing import as_stated, paying_count
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.network_paths import paths_by_plan
from tests.property.strategies import problems

SEEDS = st.integers(0, 2**32 - 1)


def times_by_variant(problem, costs):
    """Simulated seconds of the first plans of each variant, with the stated or paying count of halved micro-batches."""
    times = {}
    for plan in itertools.islice(all_plans(problem, costs), 400):
        numbers = costs.plan(as_stated(problem, plan))
        (seconds,) = iteration_times([numbers])
        if numbers.halves is not None and problem.job.slice == AUTO:
            _, seconds = paying_count(numbers, float(seconds))
        times.setdefault(plan.variant, {})[plan] = float(seconds)
    assume(times)
    return times


def random_prices(random, size):
    return random.uniform(0.0, 5.0, size) * random.integers(0, 2, size)


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5) | problems(max_layers=5, sliced=True), SEEDS)
def test_no_plan_at_or_below_the_limit_loses_a_stage(problem, seed):
    """The limits are simulated times of plans; prices are random ones, then those that cutting planes find."""
    costs, random = CostModel(problem), np.random.default_rng(seed)
    for variant, times in times_by_variant(problem, costs).items():
        limit_s = random.choice(sorted(times.values())[:5]) * (1 + PATH_SUM)
        whole = build_intervals(costs, variant, longest_s=limit_s)
        fixing = ArcFixing.without_prices(problem.cluster)
        for left in (
            whole.without_late(random_prices(random, len(whole.limits)), limit_s),
            fixing.first(whole, limit_s, stop=lambda: False),
        ):
            found = paths_by_plan(build_network(costs, variant, longest_s=limit_s, intervals=left)).keys()
            assert all(plan in found for plan, seconds in times.items() if seconds <= limit_s)


@settings(max_examples=40)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5), SEEDS)
def test_without_a_limit_the_plans_are_all_there(problem, seed):
    """Whatever the prices: only stages on no path at all are left out."""
    costs, random = CostModel(problem), np.random.default_rng(seed)
    found = set()
    for variant in problem.variants:
        left = build_intervals(costs, variant)
        left = left.without_late(random_prices(random, len(left.limits)), np.inf)
        found |= paths_by_plan(build_network(costs, variant, intervals=left)).keys()
    assert found == set(all_plans(problem, costs))


@settings(max_examples=40)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5), SEEDS)
def test_shortest_paths_are_no_longer_than_those_over_arcs(problem, seed):
    """What a path uses, times the prices, is the rest of its priced length; hosts are opened for every server class."""
    costs, random = CostModel(problem), np.random.default_rng(seed)
    for variant in problem.variants:
        intervals, network = build_intervals(costs, variant), build_network(costs, variant)
        prices, rows = random_prices(random, len(intervals.limits)), build_rows(network)
        over_arcs = network.graph.to_sink(rows.round_trip + arc_prices(rows, prices))[0]
        found = intervals.shortest(prices)
        if found is None:
            assert np.isinf(over_arcs)
            continue
        length, used = found
        assert length + float(prices @ used) <= over_arcs + 1e-9 * (1 + abs(over_arcs))
        assert used[-1] <= -1
        assert used[:-1].sum() >= 1


@settings(max_examples=30)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_the_intervals_are_those_of_the_stages_possible(problem):
    """Before anything is left out, every stage of a network is among them."""
    costs = CostModel(problem)
    for variant in problem.variants:
        intervals, network = build_intervals(costs, variant), build_network(costs, variant)
        listed = {
            (option, start, stop)
            for option, pair in enumerate(intervals.intervals())
            for start, stop in zip(*(each.tolist() for each in pair), strict=True)
        }
        stages = network.arcs.take(network.arcs.is_stage)
        columns = (stages.option, stages.start, stages.stop)
        assert listed >= set(zip(*(each.tolist() for each in columns), strict=True))
        assert len(intervals) == len(listed)
