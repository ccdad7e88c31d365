"""Clusters from findings made up by hand."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from stagecut.executor.measure.measured_cluster import measured_cluster
from stagecut.executor.measure.profile_links import (
    LinkChoices,
    RankMeasurement,
    group_sizes,
    hosts_of,
    pairs_to_measure,
)
from stagecut.executor.measure.timings import Timing
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.tree import parse_document
from stagecut.planner.io.files.cluster import cluster_of, to_tree

CHOICES = LinkChoices(
    device="cpu", processes=2, threads=1, sizes=(1024, 4096), repetitions=1, num_params=1000, matrix_side=100
)


def curve(seconds):
    """Seconds of messages of 1 kB and 4 kB."""
    return ((1024.0, seconds), (4096.0, 2 * seconds))


def rank(host, **changes):
    """A rank that multiplies in 1 ms and updates in 2 ms."""
    whole = RankMeasurement(
        host=host,
        host_name="here",
        device_type="box",
        device_title="a box",
        memory_bytes=8_000,
        products={Precision.FP32: [Timing(seconds=(1e-3,), run_queue_share=0.0)]},
        updates=[Timing(seconds=(2e-3,), run_queue_share=0.0)],
        one_way={},
        streaming={},
        all_reduce={},
    )
    return replace(whole, **changes)


def test_ranks_of_one_host_are_neighbours_and_hosts_meet_by_their_first_ranks():
    hosts = hosts_of(["a", "a", "a", "b", "c"])
    assert hosts == [[0, 1, 2], [3], [4]]
    assert pairs_to_measure(hosts) == [(0, 1), (1, 2), (0, 3), (0, 4), (3, 4)]


@pytest.mark.parametrize(("ranks", "sizes"), [(1, ()), (2, (2,)), (3, (2, 3)), (4, (2, 4)), (6, (2, 4, 6))])
def test_all_reduces_are_among_powers_of_two_and_all_ranks(ranks, sizes):
    assert group_sizes(ranks) == sizes


def test_one_host_is_one_island_with_its_tables():
    """The all-reduce is over with the slowest rank; rates: 2 x 100^3 operations in 1 ms, 28 x 1000 bytes in 2 ms."""
    found = [
        rank("a", one_way={1: curve(1.0)}, all_reduce={2: curve(3.0)}),
        rank("a", all_reduce={2: curve(4.0)}, memory_bytes=7_000),
    ]
    cluster = measured_cluster(found, CHOICES, name="mine")
    (server,), (kind,) = cluster.servers, cluster.device_types
    assert (server.name, server.count, server.islands[0].count) == ("here", 1, 2)
    assert server.islands[0].fabric.table == curve(1.0)
    assert server.islands[0].all_reduce_among(2).table == curve(4.0)
    assert dict(kind.peak_flops_per_s) == {Precision.FP32: pytest.approx(2e9)}
    assert kind.memory_bandwidth_bytes_per_s == pytest.approx(28 * 1000 / 2e-3)
    assert kind.memory_bytes == 7_000
    assert cluster.network.is_unlimited


def test_hosts_alike_are_one_class_and_their_network_the_median():
    """Three hosts of one rank: pairs of 1, 2 and 6 s."""
    found = [rank("a", one_way={1: curve(1.0), 2: curve(2.0)}), rank("b", one_way={2: curve(6.0)}), rank("c")]
    cluster = measured_cluster(found, CHOICES, name="mine")
    assert [(server.name, server.count) for server in cluster.servers] == [("here", 3)]
    assert cluster.network.table == curve(2.0)
    assert cluster.overrides == ()


def test_hosts_of_several_kinds_have_a_network_of_their_own_for_each_pair():
    """Two hosts of one rank 1 s apart, one of another kind 4 s and 6 s away."""
    found = [
        rank("a", one_way={1: curve(1.0), 2: curve(4.0)}),
        rank("b", one_way={2: curve(6.0)}),
        rank("c", device_type="chest", host_name="there"),
    ]
    cluster = measured_cluster(found, CHOICES, name="mine")
    tables = {override.servers: override.link.table for override in cluster.overrides}
    assert tables == {("here", "here"): curve(1.0), ("here", "there"): curve(5.0)}
    assert {kind.name for kind in cluster.device_types} == {"box", "chest"}


def test_the_cluster_round_trips_through_its_file():
    found = [rank("a", one_way={1: curve(1.0)}, all_reduce={2: curve(3.0)}), rank("a", all_reduce={2: curve(4.0)})]
    cluster = measured_cluster(found, CHOICES, name="mine")
    assert cluster_of(parse_document(format_json(to_tree(cluster)), file="mine.json")) == cluster
