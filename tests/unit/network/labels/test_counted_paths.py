"""Labels on hosts opened against the enumeration of all plans, with random lengths and limits."""

import math
import tracemalloc
from contextlib import nullcontext, suppress

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.decode import decode_path
from stagecut.planner.network.labels import counted_paths, pareto_paths
from stagecut.planner.network.labels.arc_terms import TERMS
from stagecut.planner.network.labels.counted_paths import (
    DEADLINE_BYTES,
    LABEL_BYTES,
    STATE_BYTES,
    CountedPaths,
    TooManyLabelsError,
    fit,
    needed_bytes,
    num_states,
)
from stagecut.planner.network.labels.criteria import Criteria, Limits
from stagecut.planner.network.labels.pareto_paths import pareto_path
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network
from stagecut.planner.solvers.exact.decision import Decision
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds
from tests.network_paths import plan_paths, positioned_network
from tests.property.strategies import problems

LAWS = settings(max_examples=50)
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=3)
SEEDS = st.integers(0, 2**32 - 1)


def criteria(num_arcs, random=None, *, limits=()):
    """Whole numbers as lengths, so that sums are exact; no limits but those on the named lengths themselves."""
    random = random or np.random.default_rng(0)
    late = [random.integers(0, 25, num_arcs).astype(float) for _ in limits]
    round_trip, forward = (random.integers(0, 8, num_arcs).astype(float) for _ in range(2))
    never = np.full(num_arcs, np.inf)
    limited = dict.fromkeys(("round_trip_limits", "forward_limits"), Limits(never, never, never))
    limited |= {name: Limits(latest, never, never) for name, latest in zip(limits, late, strict=True)}
    return Criteria(round_trip=round_trip, forward=forward, loop=-never, **limited)


def in_time(path, chosen):
    """Whether each arc is taken before its latest round trip and forward part."""
    for lengths, latest in (
        (chosen.round_trip, chosen.round_trip_limits.alone),
        (chosen.forward, chosen.forward_limits.alone),
    ):
        before = np.cumsum(lengths[path]) - lengths[path]
        if (before > latest[path]).any():
            return False
    return True


def least(network, chosen, usable):
    """Least round trip of the plans in time, infinite if there is none."""
    lengths = [
        chosen.round_trip[path].sum() for path in plan_paths(network) if usable[path].all() and in_time(path, chosen)
    ]
    return min(lengths, default=math.inf)


def path_of(found):
    return None if found is None else found.path


def length_of(path, chosen):
    return math.inf if path is None else chosen.round_trip[path].sum()


@LAWS
@given(SMALL, SEEDS)
def test_cheapest_path_opens_no_more_hosts_than_there_are(problem, seed):
    """A tenth of the arcs is left out."""
    network, random = positioned_network(problem), np.random.default_rng(seed)
    usable = random.random(len(network.arcs)) < 0.9
    chosen = criteria(len(network.arcs), random)
    assume(len(network.arcs) > 0)
    path = path_of(CountedPaths(network).cheapest(chosen, usable))
    assert length_of(path, chosen) == least(network, chosen, usable)
    assert path is None or decode_path(network, path) is not None


@LAWS
@given(SMALL, SEEDS)
def test_limits_on_the_round_trip_are_kept_exactly(problem, seed):
    """The least round trip of a label dominates all others."""
    network = positioned_network(problem)
    chosen = criteria(len(network.arcs), np.random.default_rng(seed), limits=("round_trip_limits",))
    usable = np.ones(len(network.arcs), dtype=bool)
    assume(len(network.arcs) > 0)
    path = path_of(CountedPaths(network).cheapest(chosen, usable))
    assert length_of(path, chosen) == least(network, chosen, usable)
    assert path is None or in_time(path, chosen)


@LAWS
@given(SMALL, SEEDS)
def test_limits_on_the_round_trip_with_the_way_on_lose_no_plan(problem, seed):
    """A plan is in time if its whole round trip is within the limit of each of its arcs."""
    network, random = positioned_network(problem), np.random.default_rng(seed)
    free = criteria(len(network.arcs), random)
    assume(len(network.arcs) > 0)
    latest, never = random.integers(0, 40, len(network.arcs)).astype(float), free.round_trip_limits.alone
    chosen = free._replace(round_trip_limits=Limits(never, latest, never), limit=40.0)
    plans = [path for path in plan_paths(network) if chosen.round_trip[path].sum() <= latest[path].min()]
    found = CountedPaths(network).cheapest(chosen, np.ones(len(latest), dtype=bool))
    shortest = min((chosen.round_trip[path].sum() for path in plans), default=math.inf)
    assert length_of(path_of(found), chosen) <= shortest
    assert not plans or found.possible[np.concatenate(plans)].all()


BOTH_LIMITS = ("round_trip_limits", "forward_limits")


@LAWS
@given(SMALL, SEEDS)
def test_pareto_labels_keep_limits_on_both_lengths_exactly(problem, seed):
    """The labels with one least length each are never longer, and find a path wherever there is one."""
    network = positioned_network(problem)
    chosen = criteria(len(network.arcs), np.random.default_rng(seed), limits=BOTH_LIMITS)
    usable = np.ones(len(network.arcs), dtype=bool)
    assume(len(network.arcs) > 0)
    exact_s = least(network, chosen, usable)
    path = pareto_path(network, chosen, usable)
    assert length_of(path, chosen) == exact_s
    assert path is None or (in_time(path, chosen) and decode_path(network, path) is not None)
    assert length_of(path_of(CountedPaths(network).cheapest(chosen, usable)), chosen) <= exact_s


@pytest.fixture
def pair_of_hosts():
    """Two hosts of one device, two layers: one stage, or two on different hosts."""
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(name="pair", device_types=kinds(gpu=math.inf), servers=(server,))
    return positioned_network(Problem(model=chain(2, {"gpu": 1.0}), cluster=cluster, job=job(1)))


def hosts_of(network):
    return [server.count for server in network.cluster.servers]


def test_labels_are_counted_by_node_and_hosts_opened(pair_of_hosts):
    """0, 1 or 2 hosts opened at each node that an arc touches."""
    nodes = np.union1d(pair_of_hosts.arcs.tail, pair_of_hosts.arcs.head)
    assert num_states(hosts_of(pair_of_hosts)) == 3
    assert pair_of_hosts.graph.num_nodes == len(nodes)


def test_labels_that_memory_has_no_room_for_do_not_fit():
    """10 nodes and 3 count states, with as many deadlines."""
    needed = needed_bytes(10, (2,))
    assert needed == 30 * (STATE_BYTES + DEADLINE_BYTES)
    assert fit(10, (2,), room_bytes=needed)
    assert not fit(10, (2,), room_bytes=needed - 1)


def test_setting_labels_takes_what_was_said(monkeypatch):
    """Almost no more than estimated, and not much less: 5 x 41 counts of hosts make 205 at every node, each in time."""
    servers = tuple(
        Server(name=f"host-{name}", count=count, islands=(Island(device_type="gpu", count=1),))
        for name, count in (("a", 4), ("b", 40))
    )
    cluster = Cluster(name="many", device_types=kinds(gpu=math.inf), servers=servers)
    monkeypatch.setattr(counted_paths, "_in_order_of_need", lambda network: [])  # all hosts have to be counted
    rows = build_rows(positioned_network(Problem(model=chain(12, {"gpu": 1.0}), cluster=cluster, job=job(1))))
    num_nodes = rows.network.graph.num_nodes
    needed, most = needed_bytes(num_nodes, (4, 40)), num_nodes * num_states((4, 40))
    Decision(rows).path_below(1e6)  # compiled loops are loaded once, in memory that is not of labels
    for room_bytes in LABEL_BYTES * np.geomspace(1, most, 60):
        with suppress(TooManyLabelsError):
            peak_bytes = peak_of_labels(rows, room_bytes + needed)
            break
    assert 0.5 <= peak_bytes / (needed + room_bytes) <= 1.1


def peak_of_labels(rows, room_bytes):
    """Most bytes that a question takes within the room."""
    decision = Decision(rows, room_bytes=room_bytes)
    tracemalloc.start()
    try:
        decision.path_below(1e6)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_where_nothing_is_usable_there_is_no_path(pair_of_hosts):
    nothing = np.zeros(len(pair_of_hosts.arcs), dtype=bool)
    chosen = criteria(len(nothing))
    assert CountedPaths(pair_of_hosts).cheapest(chosen, nothing) is None
    assert pareto_path(pair_of_hosts, chosen, nothing) is None


def test_too_many_labels_leave_the_question_open(pair_of_hosts, monkeypatch):
    monkeypatch.setattr(pareto_paths, "MAX_LABELS", 1)
    everything = np.ones(len(pair_of_hosts.arcs), dtype=bool)
    with pytest.raises(TooManyLabelsError):
        pareto_path(pair_of_hosts, criteria(len(everything)), everything)


def test_labels_that_turn_out_to_need_more_memory_leave_the_question_open(pair_of_hosts):
    """The source, the nodes of three plans (one stage; two, of one layer each) and the sink: more than two."""
    everything = np.ones(len(pair_of_hosts.arcs), dtype=bool)
    num_nodes, of_terms = pair_of_hosts.graph.num_nodes, TERMS.itemsize * len(everything)
    for room, enough in ((2, False), (1_000, True)):
        room_bytes = needed_bytes(num_nodes, hosts_of(pair_of_hosts)) + of_terms + room * LABEL_BYTES
        paths = CountedPaths(pair_of_hosts, room_bytes=room_bytes)
        with nullcontext() if enough else pytest.raises(TooManyLabelsError):
            assert paths.cheapest(criteria(len(everything)), everything) is not None


def test_count_states_too_many_for_memory_do_not_fit(monkeypatch):
    """The limit is on nodes times count states: 10 x 3 x 4."""
    assert fit(10, (2, 3))
    monkeypatch.setattr(counted_paths, "MAX_STATES", 10 * 3 * 4 - 1)
    assert not fit(10, (2, 3))


@LAWS
@given(SMALL, SEEDS)
def test_where_hosts_of_some_classes_are_not_counted_every_plan_is_left(problem, seed):
    """The limit leaves no room, or room for some of the count states."""
    network, random = positioned_network(problem), np.random.default_rng(seed)
    chosen, usable = criteria(len(network.arcs), random), np.ones(len(network.arcs), dtype=bool)
    assume(len(network.arcs) > 0)
    exact = CountedPaths(network).cheapest(chosen, usable)
    num_nodes, most = network.graph.num_nodes, num_states(hosts_of(network))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_paths, "MAX_STATES", num_nodes * int(random.integers(1, most + 1)))
        relaxed = CountedPaths(network, may_relax=True).cheapest(chosen, usable)
    assert exact is None or relaxed.possible[exact.possible].all()
    assert length_of(path_of(relaxed), chosen) <= length_of(path_of(exact), chosen)


@LAWS
@given(SMALL, SEEDS)
def test_prices_of_hosts_change_no_answer(problem, seed):
    """Prices from nothing to far above what hosts are worth."""
    network, random = positioned_network(problem), np.random.default_rng(seed)
    chosen = criteria(len(network.arcs), random, limits=("round_trip_limits",))
    usable, num_classes = np.ones(len(network.arcs), dtype=bool), len(problem.cluster.servers)
    prices = 10.0 ** random.integers(-2, 6, (2, num_classes)) * random.integers(0, 3, (2, num_classes))
    exact, priced = (CountedPaths(network, prices=some).cheapest(chosen, usable) for some in (None, prices))
    assert length_of(path_of(priced), chosen) == length_of(path_of(exact), chosen) == least(network, chosen, usable)
    for path in plan_paths(network) if priced is not None else ():
        if in_time(path, chosen):
            assert priced.possible[path].all()


def test_prices_of_hosts_leave_fewer_counted_nodes_to_reach(monkeypatch):
    """Six layers for two hosts of each of two classes, which hold two layers each: no more than two hosts take one.

    How many hosts are needed of both classes together is seen with prices of both alone.
    """
    servers = tuple(Server(name=name, count=2, islands=(Island(device_type="gpu", count=1),)) for name in ("a", "b"))
    cluster = Cluster(name="two of each", device_types=kinds(gpu=2.0), servers=servers)
    model = chain(6, {"gpu": 1.0}, params_bytes=2.0)
    problem = Problem(model=model, cluster=cluster, job=job(2, optimizer=WEIGHTS_ONLY))
    network = build_network(CostModel(problem), problem.variants[0])
    usable, never = np.ones(len(network.arcs), dtype=bool), np.full(len(network.arcs), np.inf)
    chosen = criteria(len(usable))._replace(round_trip_limits=Limits(never, np.full(len(usable), 1e3), never))

    def fewest_reached(prices):
        """How many counted nodes there must be room for."""
        for most in range(1, 1_000):
            monkeypatch.setattr(counted_paths, "MAX_REACHED", most)
            with suppress(TooManyLabelsError):
                assert CountedPaths(network, prices=prices).cheapest(chosen, usable) is not None
                return most
        return None

    assert fewest_reached(np.array([[1e6, 1e6]])) < fewest_reached(None)


def test_classes_that_no_path_opens_too_many_hosts_of_are_the_first_not_counted(monkeypatch):
    """Two layers: one host of the first class can be opened twice, of the three of the second at most two."""
    servers = tuple(
        Server(name=name, count=count, islands=(Island(device_type="gpu", count=1),))
        for name, count in (("one", 1), ("three", 3))
    )
    cluster = Cluster(name="few and many", device_types=kinds(gpu=math.inf), servers=servers)
    network = positioned_network(Problem(model=chain(2, {"gpu": 1.0}), cluster=cluster, job=job(1)))
    monkeypatch.setattr(counted_paths, "MAX_STATES", network.graph.num_nodes * 2)
    paths = CountedPaths(network, may_relax=True)
    assert paths.counted_hosts == (1, 0)
