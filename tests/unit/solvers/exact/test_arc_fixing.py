"""Arcs left out for a limit, against enumeration and by hand."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.interval_network import build_intervals
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from tests.catalogue import chain, fast_and_slow, job, kinds
from tests.network_paths import coarse_network, paths_by_plan
from tests.property.strategies import problems

SLACK = 1 + 1e-12


def three_hosts():
    """Three layers on as many hosts of one device that has room for three layers of a micro-batch."""
    server = Server(name="host", count=3, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(name="hosts", device_types=kinds(gpu=3.0), servers=(server,))
    own = job(9, recompute=Recompute.NEVER)
    return Problem(model=chain(3, {"gpu": 2.0}, saved_bytes=1.0), cluster=cluster, job=own)


def remaining(fixing, rows, limit_s, *, stop=lambda: False):
    return fixing.remaining(rows, limit_s, stop=stop)


@settings(max_examples=80)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=5), st.integers(0, 2**32 - 1), st.booleans())
def test_no_plan_at_or_below_the_limit_loses_an_arc(problem, seed, stopped):
    """The limits are drawn from the bounds of all plans, one after the other, without positions and with."""
    random, network = np.random.default_rng(seed), build_network(CostModel(problem), problem.variants[-1])
    for chosen in (network, with_positions(network)):
        paths = paths_by_plan(chosen)
        bounds = {plan: lower_bound(network.costs.plan(plan)) for plan in paths}
        assume(bounds)
        rows, fixing = build_rows(chosen), ArcFixing.without_prices(network.cluster)
        for limit_s in random.choice(list(bounds.values()), 3):
            left, kept = remaining(fixing, rows, limit_s * SLACK, stop=lambda: stopped)
            assert len(left.network.arcs) == len(kept)
            for plan, path in paths.items():
                assert bounds[plan] > limit_s or np.isin(path, kept).all()


def test_nothing_is_left_below_the_only_way_that_the_hosts_allow():
    """1 and 3 s on the fast and the slow host; a way over the fast one twice would take 2."""
    rows = build_rows(coarse_network(fast_and_slow()))
    fixing = ArcFixing.without_prices(rows.network.cluster)
    assert len(remaining(fixing, rows, 3.9)[1]) == 0
    assert len(remaining(fixing, rows, 4.0)[1]) > 0


def test_without_positions_they_are_left_out_one_by_one():
    """3 layers of 1 + 1 s on 3 hosts, 9 micro-batches, each micro-batch in flight saves 1 byte a layer, of 3 bytes.

    All in one stage take 54 s, two of them 36 s; one each, 18 s and the way of 6 s of the first. Without a limit [0, 1)
    may be followed by one stage as well; [1, 2) with another one to come fits, and [0, 2) does not.
    """
    network = coarse_network(three_hosts())
    fixing = ArcFixing.without_prices(network.cluster)

    def positions(limit_s):
        arcs = remaining(fixing, build_rows(network), limit_s)[0].network.arcs
        columns = (arcs.start, arcs.stop, arcs.least_position, arcs.largest_position)
        return {tuple(int(column[arc]) for column in columns) for arc in np.flatnonzero(arcs.is_stage)}

    assert positions(math.inf) == {(0, 1, 2, 3), (0, 3, 1, 1), (1, 2, 2, 2), (1, 3, 1, 1), (2, 3, 1, 1)}
    assert positions(30.0) == {(0, 1, 3, 3), (1, 2, 2, 2), (2, 3, 1, 1)}


def test_everything_is_left_without_a_limit():
    rows = build_rows(coarse_network(fast_and_slow()))
    left, kept = remaining(ArcFixing.without_prices(rows.network.cluster), rows, math.inf)
    assert left.network.num_positions == rows.network.num_positions
    for name, seconds in rows.costs_s.items():
        assert left.costs_s[name].tolist() == seconds.tolist()
    assert kept.tolist() == list(range(len(rows.network.arcs)))


def test_prices_are_remembered():
    rows = build_rows(coarse_network(fast_and_slow()))
    fixing = ArcFixing.without_prices(rows.network.cluster)
    assert not fixing.prices.any()
    remaining(fixing, rows, 4.0)
    assert fixing.prices.any()


def test_where_there_is_nothing_nothing_is_left():
    rows = build_rows(coarse_network(fast_and_slow()))
    network, kept = rows.network.restricted(np.zeros(len(rows.network.arcs), dtype=bool))
    left, kept = remaining(ArcFixing.without_prices(network.cluster), rows.restricted(network, kept), 4.0)
    assert len(left.network.arcs) == len(kept) == 0


def test_before_there_are_arcs_nothing_is_left_below_the_only_way_that_the_hosts_allow():
    """As above, and the prices are remembered."""
    problem = fast_and_slow()
    intervals = build_intervals(CostModel(problem), problem.variants[0])
    fixing = ArcFixing.without_prices(problem.cluster)
    assert len(fixing.first(intervals, 3.9, stop=lambda: False)) == 0
    assert fixing.prices.any()
    assert len(fixing.first(intervals, 4.0, stop=lambda: False)) > 0
