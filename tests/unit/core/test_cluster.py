"""Measured links and all-reduces."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stagecut.planner.core.cluster import (
    UNLIMITED,
    AllReduceTable,
    Cluster,
    Island,
    Link,
    NetworkOverride,
    Server,
    slowest,
)
from stagecut.planner.core.messages.errors import BadInputError
from tests.catalogue import kinds
from tests.property.strategies import links

BENT = Link(bandwidth_bytes_per_s=1.0, latency_s=9.0, table=((2.0, 1.0), (4.0, 2.0), (8.0, 3.0)))
"""Half a second per byte up to 4 bytes, a quarter beyond."""
SIZES = np.linspace(0.0, 40.0, 161)


def island(**changes):
    return Island(device_type="gpu", count=2, **changes)


@pytest.mark.parametrize(
    ("num_bytes", "seconds"),
    [(0.0, 1.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.5), (4.0, 2.0), (6.0, 2.5), (8.0, 3.0), (12.0, 4.0)],
)
def test_measured_link_is_linear_between_points(num_bytes, seconds):
    """Below the first point its time holds; above the last one the last segment goes on, (3 - 2) / (8 - 4) s a byte."""
    assert BENT.transfer_s(num_bytes) == seconds
    assert type(BENT.transfer_s(num_bytes)) is float


def test_many_sizes_are_looked_up_at_once():
    assert BENT.transfer_s(np.array([[1.0, 3.0], [8.0, 12.0]])).tolist() == [[1.0, 1.5], [3.0, 4.0]]


def test_single_point_goes_on_at_the_bandwidth():
    """2 s at 4 bytes, 1 / 2 s for every byte beyond."""
    link = Link(bandwidth_bytes_per_s=2.0, table=((4.0, 2.0),))
    assert [link.transfer_s(size) for size in (0.0, 4.0, 6.0)] == [2.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("link", "bandwidth"),
    [
        (BENT, 4.0),
        (Link(bandwidth_bytes_per_s=2.0), 2.0),
        (Link(bandwidth_bytes_per_s=2.0, table=((4.0, 2.0),)), 2.0),
        (Link(bandwidth_bytes_per_s=2.0, table=((4.0, 2.0), (8.0, 2.0))), float("inf")),
    ],
)
def test_bandwidth_of_large_messages_is_that_of_the_last_segment(link, bandwidth):
    assert link.large_message_bytes_per_s == bandwidth


@given(links(measured=True), st.sampled_from((1.0, 2.0, 3.0)), st.sampled_from((1.0, 2.0, 5.0)))
def test_scaled_link_takes_what_less_or_more_bytes_took(link, times, over):
    """Latency stays: with n-fold bandwidth a message takes what the n-th part took."""
    expected = link.transfer_s(SIZES * over / times)
    np.testing.assert_allclose(link.scaled(times, over=over).transfer_s(SIZES), expected, rtol=1e-12)


@given(links(measured=True), links(measured=True))
def test_slowest_is_no_faster_than_either(first, second):
    """Whichever way round."""
    longest_s = np.maximum(first.transfer_s(SIZES), second.transfer_s(SIZES))
    both_s = slowest(first, second).transfer_s(SIZES)
    assert (both_s >= longest_s * (1 - 1e-12)).all()
    np.testing.assert_allclose(slowest(second, first).transfer_s(SIZES), both_s, rtol=1e-12)


@given(links(measured=True))
def test_slowest_of_a_link_and_an_unlimited_one_is_as_fast_as_the_link(link):
    np.testing.assert_allclose(slowest(UNLIMITED, link).transfer_s(SIZES), link.transfer_s(SIZES), rtol=1e-12)


def test_slowest_has_the_longer_seconds_at_every_point():
    """4 + n against 1, 1 .. 2, 2 .. 3 s: the line, and on at its 1 s a byte, which is the slower of both."""
    line = Link(bandwidth_bytes_per_s=1.0, latency_s=4.0)
    assert slowest(BENT, line).table == ((2.0, 6.0), (4.0, 8.0), (8.0, 12.0), (17.0, 21.0))


@pytest.mark.parametrize(
    ("table", "rule"),
    [
        (((2.0, 1.0), (2.0, 2.0)), "in order of bytes, with non-decreasing seconds"),
        (((4.0, 1.0), (2.0, 2.0)), "in order of bytes, with non-decreasing seconds"),
        (((2.0, 2.0), (4.0, 1.0)), "in order of bytes, with non-decreasing seconds"),
        (((-1.0, 1.0),), "of numbers of at least 0"),
        (((1.0, float("inf")),), "of numbers of at least 0"),
        (((0.0, 0.0), (5e-324, 1e30)), "of sizes that are further apart"),
    ],
)
def test_points_out_of_order_are_refused(table, rule):
    with pytest.raises(BadInputError, match=f"link: table must be {rule}"):
        Link(bandwidth_bytes_per_s=1.0, table=table)


def test_all_reduce_is_read_like_a_link():
    """0.5 s a byte beyond 4 bytes; over a fabric twice as fast at twice the bytes."""
    table = AllReduceTable(num_devices=2, table=((2.0, 1.0), (4.0, 2.0)))
    assert table.seconds(np.array([0.0, 3.0, 8.0])).tolist() == [1.0, 1.5, 4.0]
    assert table.scaled(2.0).seconds(np.array([0.0, 6.0, 16.0])).tolist() == [1.0, 1.5, 4.0]


def test_all_reduce_needs_two_points_and_two_devices():
    with pytest.raises(BadInputError, match="all-reduce among 2: table must be of 2 points or more"):
        AllReduceTable(num_devices=2, table=((2.0, 1.0),))
    with pytest.raises(BadInputError, match="num_devices must be at least 2, got 1"):
        AllReduceTable(num_devices=1, table=BENT.table)


def test_island_has_one_all_reduce_for_a_number_of_devices():
    pair = AllReduceTable(num_devices=2, table=BENT.table)
    assert island(all_reduce=(pair,)).all_reduce_among(2) == pair
    assert island(all_reduce=(pair,)).all_reduce_among(3) is None
    with pytest.raises(BadInputError, match="numbers of devices of all_reduce must be without repetitions, got 2"):
        island(all_reduce=(pair, pair))


def test_interface_has_no_table():
    with pytest.raises(BadInputError, match="server 'a': nic must be without a table; tables belong to the network"):
        Server(name="a", islands=(island(),), nic=BENT)


@pytest.mark.parametrize(
    ("server", "changes", "found"),
    [
        (Server(name="a", islands=(island(),)), {}, False),
        (Server(name="a", islands=(island(),), bridge=BENT), {}, True),
        (Server(name="a", islands=(island(fabric=BENT),)), {}, True),
        (Server(name="a", islands=(island(all_reduce=(AllReduceTable(num_devices=2, table=BENT.table),)),)), {}, True),
        (Server(name="a", islands=(island(),)), {"network": BENT}, True),
        (
            Server(name="a", islands=(island(),)),
            {"overrides": (NetworkOverride(servers=("a", "a"), link=BENT),)},
            True,
        ),
    ],
)
def test_cluster_knows_whether_anything_is_measured(server, changes, found):
    cluster = Cluster(name="c", device_types=kinds(gpu=1.0), servers=(server,), **changes)
    assert cluster.has_tables is found
