"""Prices of hosts, by hand and against the definition of what they prove."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.pruning import arc_prices
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.solvers.exact import host_prices
from stagecut.planner.solvers.exact.host_prices import (
    GAIN_TOLERANCE,
    NEAR_OPTIMUM,
    best_of_cuts,
    find_host_prices,
    prices_of_few,
)
from tests.catalogue import fast_and_slow
from tests.network_paths import coarse_network
from tests.property.strategies import problems


def proven(rows, prices):
    """Shortest priced round trip, less what hosts cost in all."""
    length = rows.round_trip + arc_prices(rows, prices)
    return rows.network.graph.to_sink(length)[0] - float(prices @ rows.network.limits)


def prices_of(rows, start=None, *, stop=lambda: False):
    start = np.zeros(len(rows.network.limits)) if start is None else start
    return find_host_prices(rows, start, stop=stop)


def test_fast_hosts_become_so_dear_that_slow_ones_are_taken():
    """Without prices the shortest way takes the fast host twice: 2 s. With them, both hosts once: 4 s."""
    rows = build_rows(coarse_network(fast_and_slow()))
    assert proven(rows, np.zeros(3)) == 2.0
    assert proven(rows, prices_of(rows)) == pytest.approx(4.0, rel=2 * GAIN_TOLERANCE)


def test_prices_prove_the_more_the_fewer_arcs_are_left():
    """Without the fast host nothing can be paid: the slow one twice, 6 s, and the more the dearer it is."""
    rows = build_rows(coarse_network(fast_and_slow()))
    slow_only = rows.restricted(*rows.network.restricted(rows.network.arcs.opened_class != 0))
    assert proven(slow_only, prices_of(slow_only)) >= 6.0


def test_where_few_hosts_are_left_they_are_dear(monkeypatch):
    """Three quarters, and half, of one fast and of one slow host are too few for two layers, at any price."""
    rows = build_rows(coarse_network(fast_and_slow()))
    assert prices_of_few(rows, stop=lambda: False).shape == (0, 2)  # so few counted nodes are not worth it
    monkeypatch.setattr(host_prices, "WORTH_PRICES", 0)
    found = prices_of_few(rows, stop=lambda: False)
    for share, prices in zip(host_prices.TIGHT, found, strict=True):
        length = rows.round_trip + arc_prices(rows, np.append(prices, 0.0))
        assert rows.network.graph.to_sink(length)[0] - share * prices.sum() > 1_000 * 4.0


def test_without_a_way_prices_stay_as_they_are():
    rows = build_rows(coarse_network(fast_and_slow()))
    start = np.array([1.0, 2.0, 0.0])
    nothing = rows.restricted(*rows.network.restricted(np.zeros(len(rows.network.arcs), dtype=bool)))
    assert prices_of(nothing, start).tolist() == start.tolist()
    assert math.isinf(proven(nothing, start))


@settings(max_examples=60)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=4), st.integers(0, 2**32 - 1), st.booleans())
def test_prices_are_no_worse_than_those_to_begin_with(problem, seed, stopped):
    """The prices are never negative."""
    network = build_network(CostModel(problem), problem.variants[-1])
    assume(len(network.arcs) > 0)
    random, rows = np.random.default_rng(seed), build_rows(network)
    start = random.uniform(0.0, 5.0, len(network.limits)) * random.integers(0, 2, len(network.limits))
    found = prices_of(rows, start, stop=lambda: stopped)
    assert (found >= 0).all()
    before, after = proven(rows, start), proven(rows, found)
    assert after >= before - 1e-9 * (1 + abs(before))


@settings(max_examples=60)
@given(st.integers(1, 12), st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_best_of_cuts_is_near_its_bound_which_no_prices_exceed(num_cuts, num_prices, seed):
    """Both together say that the prices are nearly the best between 0 and 1; the bound may be twice as far off."""
    random = np.random.default_rng(seed)
    lengths = random.uniform(0.2, 1.0, num_cuts)
    slopes = random.normal(size=(num_cuts, num_prices)) * random.choice([0.0, 0.1, 1.0, 10.0], num_prices)

    def least(prices):
        return (lengths + prices @ slopes.T).min(axis=-1)

    prices, bound = best_of_cuts(lengths, np.column_stack((slopes, np.full(num_cuts, -1.0))))
    assert ((prices > 0) & (prices < 1)).all()
    assert bound - 3 * NEAR_OPTIMUM <= least(prices) <= bound
    assert least(random.random((1000, num_prices))).max() <= bound
    assert least(random.integers(0, 2, (100, num_prices))).max() <= bound
