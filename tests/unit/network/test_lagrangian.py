"""Bounds proven by multipliers, by hand on a chain with few plans."""

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.lagrangian import Multipliers, price, single_family
from stagecut.planner.network.rows import build_rows
from tests.catalogue import chain, job, kinds
from tests.network_paths import positioned_network

INFINITE = float("inf")


def rows_of(num_layers, *, count, num_microbatches=3):
    """Equal layers of F = B = 1 s on hosts of one device."""
    server = Server(name="host", count=count, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(name="equal", device_types=kinds(gpu=INFINITE), servers=(server,))
    problem = Problem(model=chain(num_layers, {"gpu": 2.0}), cluster=cluster, job=job(num_microbatches))
    return build_rows(positioned_network(problem))


def test_weight_of_a_family_is_spread_over_its_rows():
    rows = rows_of(4, count=1)
    weights = single_family(rows, "fill").of_rows
    names = [family.name for family in rows.families]
    assert weights[names.index("fill")].tolist() == [0.25, 0.25, 0.25, 0.25, 0.0]
    assert weights.sum() == 1.0


@pytest.mark.parametrize("family", ["busy", "fill", "sync"])
def test_bound_of_a_single_plan_is_its_row(family):
    """2 layers of 2 s on one device, 3 micro-batches: 12 s in each of the three families."""
    rows = rows_of(2, count=1)
    assert price(rows, single_family(rows, family)).bound_s == pytest.approx(12.0, rel=1e-9)


def test_bound_is_rounded_down():
    rows = rows_of(2, count=1)
    assert price(rows, single_family(rows, "busy")).bound_s < 12.0


def test_arcs_of_a_plan_are_bound_by_its_averaged_rows():
    """2 layers on 2 hosts, 3 micro-batches, busy rows with a weight of 1/2 each.

    One stage: 12 s in both rows. Two stages of 2 s: 6 s in the first, 2 + 6 in the second: 7 on average.
    """
    rows = rows_of(2, count=2)
    arcs = rows.network.arcs
    priced = price(rows, single_family(rows, "busy"))
    whole = arcs.is_stage & (arcs.stop - arcs.start == 2)
    assert priced.through_s[whole] == pytest.approx([12.0])
    assert priced.through_s[arcs.is_stage & ~whole] == pytest.approx([7.0, 7.0])
    assert priced.bound_s == pytest.approx(7.0)


@pytest.mark.parametrize(("price_of_host", "bounds"), [(0.0, (12.0, 7.0)), (1.0, (11.0, 7.0)), (4.0, (8.0, 7.0))])
def test_hosts_are_charged_when_opened_and_refunded_by_their_number(price_of_host, bounds):
    """Plans of one and of two stages pay for 1 and 2 hosts, less 2 in either case."""
    rows = rows_of(2, count=2)
    arcs = rows.network.arcs
    weights = Multipliers(of_rows=single_family(rows, "busy").of_rows, of_hosts=np.array([price_of_host]))
    priced = price(rows, weights)
    whole = arcs.is_stage & (arcs.stop - arcs.start == 2)
    assert (priced.through_s[whole][0], priced.bound_s) == pytest.approx(bounds)


def test_no_arcs_no_plan_no_finite_bound():
    network = rows_of(2, count=1).network
    rows = build_rows(network.restricted(np.zeros(len(network.arcs), dtype=bool))[0])
    assert price(rows, single_family(rows, "busy")).bound_s == INFINITE
