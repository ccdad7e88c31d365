"""Several labels at a node and count state are a relaxation as well, and a tighter one."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels.counted_paths import Rival
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact.decision import Decision
from tests.network_paths import paths_by_plan
from tests.property.strategies import problems

SLACK = 1 + 1e-9


@settings(max_examples=25)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=10), st.integers(0, 2**32 - 1))
def test_no_arc_of_a_plan_below_the_limit_is_impossible_with_any_labels(problem, seed):
    """However many, and whatever path sets their windows. The limit is the simulated time of one of the plans."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    coarse = build_network(costs, problem.variants[-1])
    for network in (coarse, with_positions(coarse)):
        paths = paths_by_plan(network)
        assume(0 < len(paths) < 500)
        seconds = iteration_times([costs.plan(plan) for plan in paths])
        limit_s = random.choice(seconds)
        depths = np.arange(random.integers(1, 5)) + 1
        rival = Rival(depths, np.cumsum(limit_s * random.random(len(depths)))) if random.random() < 0.8 else None
        decision = Decision(build_rows(network), width=int(random.integers(1, 9)), rival=rival)
        found = decision.path_below(limit_s * SLACK)
        assert found is not None
        for path, taken_s in zip(paths.values(), seconds, strict=True):
            assert taken_s > limit_s or found.possible[path].all()


@settings(max_examples=25)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=6), st.floats(0.5, 1.5))
def test_with_more_labels_no_arc_becomes_possible(problem, share):
    """The limit is around the least simulated time. Under 1F1B a label chooses the stages whose loops it follows.

    Under eager 1F1B too, but there is no loop of two stages with less than 2 x 3 + 1 micro-batches.
    """
    variant, costs = problem.variants[-1], CostModel(problem)
    assume(variant.schedule is not Schedule.ONE_F_ONE_B)
    network = with_positions(build_network(costs, variant))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 500)
    limit_s = share * min(iteration_times([costs.plan(plan) for plan in paths]))
    one, many = (Decision(build_rows(network), width=width).path_below(limit_s) for width in (1, 64))
    assert many is None or (one is not None and one.possible[many.possible].all())
