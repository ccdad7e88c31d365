"""What single arcs prove, against the enumeration of all plans and by hand."""

import math

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.errors import StoppedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.pruning import arc_prices, left_by_arcs
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import ARC_BYTES, build_network, with_positions
from stagecut.planner.simulator.bounds import lower_bound
from tests.catalogue import chain, job, kinds, one_device_per_server
from tests.network_paths import coarse_network, paths_by_plan, positioned_network
from tests.property.strategies import problems

ROUNDING = 1e-12
LAWS = settings(max_examples=50)
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=5)
SEEDS = st.integers(0, 2**32 - 1)


def random_prices(random, network):
    """Prices of hosts and of a stage, some of them zero, about as large as the times of a stage."""
    limits = network.limits
    return random.uniform(0.0, 20.0, len(limits)) * random.integers(0, 2, len(limits))


def last_network(problem):
    """The network of the last variant, without positions."""
    return build_network(CostModel(problem), problem.variants[-1])


@LAWS
@given(SMALL, SEEDS)
def test_no_plan_takes_less_than_the_lowest_time_of_any_of_its_arcs(problem, seed):
    """This holds for any prices, with and without positions, for shared rows and all rows."""
    random, network = np.random.default_rng(seed), last_network(problem)
    networks = [chosen for chosen in (network, with_positions(network)) if len(chosen.arcs) > 0]
    assume(networks)
    for chosen in networks:
        for shared_only in (True, False):
            rows = build_rows(chosen, shared_only=shared_only)
            lowest_s = left_by_arcs(rows, random_prices(random, chosen), math.inf).lowest_s
            for plan, path in paths_by_plan(chosen).items():
                assert lowest_s[path].max() <= lower_bound(network.costs.plan(plan)) * (1 + ROUNDING)


@LAWS
@given(SMALL, SEEDS)
def test_lowest_times_of_some_lengths_hold_for_plans_of_these_lengths(problem, seed):
    """Stages have a price where only plans of at least some number of stages count."""
    random, network = np.random.default_rng(seed), last_network(problem)
    assume(len(network.arcs) > 0)
    shortest = int(random.integers(1, network.costs.max_stages + 1))
    meant = network.of_lengths(shortest, network.costs.max_stages)
    lowest_s = left_by_arcs(build_rows(meant), random_prices(random, meant), math.inf).lowest_s
    for plan, path in paths_by_plan(network).items():
        if len(plan.stages) >= shortest:
            assert lowest_s[path].max() <= lower_bound(network.costs.plan(plan)) * (1 + ROUNDING)


@LAWS
@given(SMALL, SEEDS)
def test_no_plan_below_the_limit_has_a_position_out_of_range(problem, seed):
    """Nor is it missing from the network that is built of the ranges."""
    random, network = np.random.default_rng(seed), last_network(problem)
    bounds = {plan: lower_bound(network.costs.plan(plan)) for plan in paths_by_plan(network)}
    assume(bounds)
    rows = build_rows(network)
    for limit_s in (min(bounds.values()), random.choice(list(bounds.values()))):
        _, *ranges = left_by_arcs(rows, random_prices(random, network), limit_s)
        narrowed = network.narrowed(*ranges)
        fine = with_positions(narrowed)
        assert {plan for plan, bound_s in bounds.items() if bound_s <= limit_s} <= paths_by_plan(fine).keys()
        assert len(fine.arcs) <= narrowed.num_positions


def hosts_of(problem_layers, *classes, micro_batches=1):
    """Equal layers on classes of (seconds per layer, number of hosts), one device each."""
    names = [f"kind{index}" for index in range(len(classes))]
    servers = tuple(
        Server(name=name, count=count, islands=(Island(device_type=name, count=1),))
        for name, (_, count) in zip(names, classes, strict=True)
    )
    seconds = {name: each for name, (each, _) in zip(names, classes, strict=True)}
    cluster = Cluster(name="hosts", device_types=kinds(**dict.fromkeys(names, math.inf)), servers=servers)
    return Problem(model=chain(problem_layers, seconds), cluster=cluster, job=job(micro_batches))


def test_opened_hosts_are_paid_for_and_stages_rewarded():
    """A host costs 3, a stage earns 0.5; crossing to another host is paid like opening the first one."""
    rows = build_rows(coarse_network(hosts_of(2, (2.0, 2))))
    arcs = rows.network.arcs
    price = arc_prices(rows, np.array([3.0, 0.5]))
    assert set(price[arcs.is_stage]) == {-0.5}
    assert set(price[~arcs.is_stage]) == {3.0}


def test_without_prices_an_arc_proves_its_own_largest_row():
    """2 layers of 2 s, 3 micro-batches. [0, 2): 12 s. [0, 1) fills 4 + 2 x 2 - 1, [1, 2) 4 + 2 x 2."""
    rows = build_rows(positioned_network(hosts_of(2, (2.0, 2), micro_batches=3)), shared_only=True)
    arcs = rows.network.arcs
    lowest_s = left_by_arcs(rows, np.zeros(2), math.inf).lowest_s
    found = {(int(arcs.start[a]), int(arcs.stop[a])): lowest_s[a] for a in np.flatnonzero(arcs.is_stage)}
    assert found == pytest.approx({(0, 2): 12.0, (0, 1): 7.0, (1, 2): 8.0})


def test_prices_show_that_fast_hosts_do_not_suffice():
    """One fast host of 1 s per layer, and slow ones of 3 s: of 2 layers in 2 stages one is slow, 4 s in all.

    A path may take the fast host twice, 2 s. At a price of 2 that path pays 2 x 2 for what is there once: 2 + 4 - 2.
    """
    rows = build_rows(coarse_network(hosts_of(2, (1.0, 1), (3.0, 2))), shared_only=True)
    arcs = rows.network.arcs
    rows = rows.restricted(*rows.network.restricted(~arcs.is_stage | (arcs.stop - arcs.start == 1)))
    free, paid = (left_by_arcs(rows, np.array([price, 0.0, 0.0]), math.inf).lowest_s for price in (0.0, 2.0))
    assert min(free) == pytest.approx(2.0)
    assert min(paid) == pytest.approx(4.0)


def test_positions_that_take_too_long_are_out_of_range():
    """3 layers of 2 s on hosts that are a transfer of 5 s apart: below 10 s nothing is cut."""
    problem = hosts_of(3, (2.0, 3))
    model = chain(3, {"kind0": 2.0}, output_bytes=1.0)
    slow = Cluster(
        name="slow",
        device_types=problem.cluster.device_types,
        servers=problem.cluster.servers,
        network=type(problem.cluster.network)(bandwidth_bytes_per_s=0.2),
    )
    network = coarse_network(Problem(model=model, cluster=slow, job=problem.job))
    rows = build_rows(network)
    in_time, late = (left_by_arcs(rows, np.zeros(2), limit_s) for limit_s in (1000.0, 10.0))
    assert network.num_positions == network.narrowed(*in_time[1:]).num_positions
    fine = network.narrowed(*late[1:])
    assert set(fine.arcs.largest_position[fine.graph.by_tail]) == {1}
    assert len(paths_by_plan(with_positions(fine))) == 1


def test_a_network_that_does_not_fit_into_memory_is_not_built():
    """Six layers have 21 intervals; with room for one arc only, none is allocated."""
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(4))
    costs, variant = CostModel(problem), problem.variants[0]
    assert len(build_network(costs, variant, room_bytes=1e6).arcs) > 0
    with pytest.raises(MemoryError):
        build_network(costs, variant, room_bytes=ARC_BYTES)


@pytest.mark.parametrize("asked", range(4))
def test_a_network_is_no_longer_built_once_told_to_stop(asked):
    """Before arcs, before the graph, and before each of two rounds of depths."""
    problem = Problem(model=chain(6, {"gpu": 1.0}), cluster=one_device_per_server("gpu", "gpu"), job=job(4))
    answers = iter([False] * asked + [True])
    with pytest.raises(StoppedError):
        build_network(CostModel(problem), problem.variants[0], stop=lambda: next(answers))
