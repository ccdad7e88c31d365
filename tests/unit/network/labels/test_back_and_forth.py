"""Sweeps either way, and the paths that they leave, lose no plan below the limit."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels.back_and_forth import Rival
from stagecut.planner.network.labels.enumeration import one_by_one
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact.decision import Decision
from tests.network_paths import paths_by_plan
from tests.property.strategies import problems

SLACK = 1 + 1e-9


@settings(max_examples=50)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=10), st.integers(0, 2**32 - 1))
def test_every_plan_below_the_limit_is_left(problem, seed):
    """Whatever path sets the windows. The limit is the simulated time of one of the plans."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    coarse = build_network(costs, problem.variants[-1])
    for network in (coarse, with_positions(coarse)):
        paths = paths_by_plan(network)
        assume(0 < len(paths) < 500)
        seconds = iteration_times([costs.plan(plan) for plan in paths])
        limit_s = random.choice(seconds)
        depths = np.arange(random.integers(1, 5)) + 1
        rival = Rival(depths, np.cumsum(limit_s * random.random(len(depths)))) if random.random() < 0.8 else None
        decision = Decision(build_rows(network), rival=rival)
        found = decision.path_below(limit_s * SLACK)
        assert found is not None
        left = {tuple(path.tolist()) for path in one_by_one(decision.paths_below(most_steps=10**6, most_paths=500))}
        for path, taken_s in zip(paths.values(), seconds, strict=True):
            if taken_s <= limit_s:
                assert found.possible[path].all()
                assert tuple(path.tolist()) in left


@settings(max_examples=50)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=10), st.floats(0.8, 1.2))
def test_what_is_left_is_every_path_in_time_once(problem, share):
    """The limit is around the least simulated time; the busy rows of all that is left are within it.

    A beam finds none but these, and some if it is wide enough.
    """
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[-1]))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 500)
    limit_s = share * min(iteration_times([costs.plan(plan) for plan in paths]))
    decision = Decision(build_rows(network))
    found = decision.path_below(limit_s)
    if found is None:
        return
    left = [tuple(path.tolist()) for path in one_by_one(decision.paths_below(most_steps=10**6, most_paths=500))]
    assert len(set(left)) == len(left)
    narrow, wide = ([tuple(path.tolist()) for path in decision.beam(width)] for width in (1, 500))
    assert set(narrow) | set(wide) <= set(left)
    assert len(set(wide)) == len(wide) and bool(wide) == bool(left)
    plans = {tuple(path.tolist()): plan for plan, path in paths.items()}
    for path in left:
        assert found.possible[list(path)].all()
        assert max(bound_rows(costs.plan(plans[path]))["busy"]) <= limit_s * SLACK


@settings(max_examples=25)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=6))
def test_too_many_paths_or_steps_give_no_answer(problem):
    """All paths are in time without a limit."""
    network = with_positions(build_network(CostModel(problem), problem.variants[-1]))
    paths = paths_by_plan(network)
    assume(1 < len(paths) < 500)
    decision = Decision(build_rows(network))
    assert decision.path_below(1e9) is not None
    assert len(decision.paths_below(most_steps=10**6, most_paths=len(paths))) == len(paths)
    assert decision.paths_below(most_steps=10**6, most_paths=len(paths) - 1) is None
    assert decision.paths_below(most_steps=1, most_paths=len(paths)) is None
