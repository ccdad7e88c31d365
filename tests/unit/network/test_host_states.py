"""Entries, exits, options and crossings of a small cluster, by hand.

Class 0 `a`: two hosts with one island of two devices. Class 1 `b`: a host with islands x and y of one device.
"""

from collections import Counter

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.host_states import Exit, HostEntry, build_host_states
from tests.catalogue import chain, job, kinds

CLUSTER = Cluster(
    name="two classes",
    device_types=kinds(gpu=float("inf")),
    servers=(
        Server(
            name="a",
            islands=(Island(device_type="gpu", count=2, fabric=Link(bandwidth_bytes_per_s=8.0)),),
            count=2,
            nic=Link(bandwidth_bytes_per_s=2.0, latency_s=0.5),
        ),
        Server(
            name="b",
            islands=(Island(device_type="gpu", count=1), Island(device_type="gpu", count=1)),
            bridge=Link(bandwidth_bytes_per_s=3.0),
        ),
    ),
)
X, Y, BOTH = frozenset({0}), frozenset({1}), frozenset({0, 1})


def leave(server_class, island, visited, used, *, num_hosts=1):
    return Exit(server_class=server_class, num_hosts=num_hosts, island=island, visited=visited, used=used)


def places(micro_batch=4, *, shareable=False, **choices):
    model = chain(1, {"gpu": 1.0}, tensor_parallel_bytes=0.0 if shareable else None)
    problem = Problem(model=model, cluster=CLUSTER, job=job(1, micro_batch=micro_batch, **choices))
    return build_host_states(problem, CLUSTER, micro_batch=micro_batch)


OPEN_ONE_A, OPEN_TWO_A, OPEN_B = (
    HostEntry(server_class=server_class, opened_hosts=hosts, island=None, before=None)
    for server_class, hosts in ((0, 1), (0, 2), (1, 1))
)
HALF_A, FULL_A, TWO_A = leave(0, 0, X, 1), leave(0, 0, X, 2), leave(0, 0, X, 2, num_hosts=2)
X_OF_B, Y_OF_B, X_LAST, Y_LAST = leave(1, 0, X, 1), leave(1, 1, Y, 1), leave(1, 0, BOTH, 1), leave(1, 1, BOTH, 1)


def stay(before, island):
    return HostEntry(server_class=before.server_class, opened_hosts=0, island=island, before=before)


def test_entries_are_openings_and_what_is_left_of_the_current_host():
    """No host is left partly used after two devices of `a`, after whole hosts, or after both islands of `b`."""
    assert set(places().entries) == {
        OPEN_ONE_A,
        OPEN_TWO_A,
        OPEN_B,
        stay(HALF_A, 0),
        stay(X_OF_B, 1),
        stay(Y_OF_B, 0),
    }


def test_exits_tell_how_far_a_host_is_used():
    assert set(places().exits) == {HALF_A, FULL_A, TWO_A, X_OF_B, Y_OF_B, X_LAST, Y_LAST}


def test_options_are_the_placements_of_every_entry():
    """1 or 2 devices of a host, 4 on two whole hosts; one device after another; one island, then the other."""
    found = places()
    single = {(c, i): Placement(server_class=c, island=i) for c in (0, 1) for i in (0, 1)}
    assert {(found.entries[o.entry], o.placement, found.exits[o.exit]) for o in found.options} == {
        (OPEN_ONE_A, single[0, 0], HALF_A),
        (OPEN_ONE_A, Placement(server_class=0, island=0, replicas=2), FULL_A),
        (OPEN_TWO_A, Placement(server_class=0, island=0, num_hosts=2, replicas=4), TWO_A),
        (stay(HALF_A, 0), single[0, 0], FULL_A),
        (OPEN_B, single[1, 0], X_OF_B),
        (OPEN_B, single[1, 1], Y_OF_B),
        (stay(X_OF_B, 1), single[1, 1], Y_LAST),
        (stay(Y_OF_B, 0), single[1, 0], X_LAST),
    }
    assert len(found.options) == 8


def test_every_exit_leads_to_every_opening_and_to_its_own_host():
    """3 from the source; 7 exits x 3 openings; and 3 exits have something left: 27."""
    found = places()
    counts = Counter(None if c.exit is None else found.exits[c.exit] for c in found.crossings)
    assert counts == {None: 3, HALF_A: 4, FULL_A: 3, TWO_A: 3, X_OF_B: 4, Y_OF_B: 4, X_LAST: 3, Y_LAST: 3}


@pytest.mark.parametrize(
    ("leaving", "entering", "link"),
    [
        (HALF_A, stay(HALF_A, 0), Link(bandwidth_bytes_per_s=8.0)),
        (X_OF_B, stay(X_OF_B, 1), Link(bandwidth_bytes_per_s=3.0)),
        (HALF_A, OPEN_ONE_A, Link(bandwidth_bytes_per_s=2.0, latency_s=1.0)),
        (TWO_A, OPEN_B, Link(bandwidth_bytes_per_s=4.0, latency_s=0.5)),
    ],
)
def test_crossings_carry_fabric_bridge_or_network(leaving, entering, link):
    """Two hosts send through two interfaces of 2 bytes/s."""
    found = places()
    (crossing,) = [
        c for c in found.crossings if c.exit == found.exits.index(leaving) and c.entry == found.entries.index(entering)
    ]
    assert crossing.link == link


def test_replicas_the_job_forbids_are_no_options():
    """If only one replica is allowed, whole hosts are not opened and two devices of a host are two stages."""
    found = places(replicas=(1,))
    assert OPEN_TWO_A not in found.entries
    assert {option.placement.replicas for option in found.options} == {1}
    assert FULL_A in found.exits


def test_replicas_divide_the_micro_batch():
    assert {option.placement.replicas for option in places(micro_batch=2).options} == {1, 2}


def test_devices_share_a_replica_inside_a_host():
    """Two devices of a host are two replicas or one; of two whole hosts four, or two of two devices each."""
    splits = {
        (option.placement.num_hosts, option.placement.replicas, option.placement.tensor_parallel)
        for option in places(shareable=True).options
    }
    assert splits == {(1, 1, 1), (1, 2, 1), (1, 1, 2), (2, 4, 1), (2, 2, 2)}


def test_groups_that_use_a_host_alike_leave_the_same_behind():
    """Whether two devices are two replicas, or share one."""
    assert set(places(shareable=True).exits) == set(places().exits)


def test_cluster_without_any_option_has_no_entries():
    """Three replicas fit nowhere."""
    found = places(micro_batch=3, replicas=(3,))
    assert (found.entries, found.exits, found.options, found.crossings) == ((), (), (), ())
