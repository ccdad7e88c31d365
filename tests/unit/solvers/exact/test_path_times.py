"""Paths simulated from their arcs."""

import math
from dataclasses import replace
from functools import partial

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.decode import decode_paths
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact.path_times import PathTimes, can_time
from tests.catalogue import fast_and_slow, with_links
from tests.network_paths import all_paths, coarse_network, positioned_network
from tests.property.strategies import problems

ROUNDING = 1e-12
MOST_PATHS = 200


small = problems(max_layers=5, max_devices=6, max_micro_batches=6)
"""With several classes, islands and pipelines, and recomputation."""
contended = st.sampled_from((1.0, 5.0, 50.0)).flatmap(
    lambda speed: small.map(partial(with_links, bandwidth_bytes_per_s=speed))
)


@settings(max_examples=150)
@given(small | contended, st.integers(0, 2**32 - 1), st.floats(0.7, 1.3))
def test_a_path_takes_as_long_as_its_plan(problem, seed, share):
    """In every schedule; one that is given up takes at least until the latest time asked for."""
    random = np.random.default_rng(seed)
    costs, variant = CostModel(problem), problem.variants[random.integers(len(problem.variants))]
    network = with_positions(build_network(costs, variant))
    assume(can_time(network))
    paths = [path for path, _ in zip(all_paths(network), range(MOST_PATHS), strict=False)]
    assume(paths)
    plans, times_s = decode_paths(network, paths), np.full(len(paths), math.inf)
    is_plan = np.array([plan is not None for plan in plans])
    times_s[is_plan] = iteration_times([costs.plan(plan) for plan in plans if plan is not None])
    timed, latest_s = PathTimes(network), share * random.choice(times_s)
    np.testing.assert_allclose(timed.seconds(paths, math.inf), times_s, rtol=ROUNDING)
    seconds = timed.seconds(paths, latest_s)
    finished = np.isfinite(seconds)
    np.testing.assert_allclose(seconds[finished], times_s[finished], rtol=ROUNDING)
    assert (times_s[~finished] >= latest_s * (1 - ROUNDING)).all()


def test_paths_without_positions_and_with_halves_are_not_simulated_from_arcs():
    """Depths are not known there, or halves have seconds of their own."""
    problem = fast_and_slow()
    assert can_time(positioned_network(problem))
    assert not can_time(coarse_network(problem))
    sliced = replace(problem, job=replace(problem.job, micro_batches=(2,), global_batch=8, slice=1))
    assert not can_time(positioned_network(sliced))
