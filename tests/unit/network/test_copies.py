"""Positions that are looked at without being built, beside the network in which they are."""

import math

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.pruning import arc_prices, left_by_arcs
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, by_mode, with_positions
from stagecut.planner.solvers.exact.host_prices import GAIN_TOLERANCE, find_host_prices
from tests.property.strategies import problems

LAWS = settings(max_examples=60)
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=5)
SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 1e-12


def both(problem):
    """The network with an arc for each recompute mode, and the one with positions, of the last variant."""
    network = build_network(CostModel(problem), problem.variants[-1])
    fine = with_positions(network)
    assume(len(fine.arcs))
    return by_mode(network)[0], fine


def name_of(arcs, arc):
    """What tells the stages of an arc from others."""
    return tuple(int(getattr(arcs, name)[arc]) for name in ("option", "start", "stop", "recompute"))


@LAWS
@given(SMALL)
def test_each_position_has_the_mode_and_the_costs_that_it_has_once_built(problem):
    """Every arc with positions stands within the range of just one arc of its stage."""
    network, fine = both(problem)
    arcs = network.arcs
    for number in np.flatnonzero(fine.arcs.is_stage).tolist():
        position = fine.arcs.least_position[number]
        alike = (arcs.option == fine.arcs.option[number]) & (arcs.start == fine.arcs.start[number])
        alike &= (arcs.stop == fine.arcs.stop[number]) & (arcs.least_position <= position)
        (found,) = np.flatnonzero(alike & (position <= arcs.largest_position))
        for name in ("recompute", "forward_s", "backward_s", "first_s", "tail_s", "sync_s"):
            assert getattr(arcs, name)[found] == getattr(fine.arcs, name)[number]


@LAWS
@given(SMALL, SEEDS)
def test_single_arcs_prove_as_much_as_once_positions_are_built(problem, seed):
    """The least over the positions of each stage, for any prices."""
    network, fine = both(problem)
    random = np.random.default_rng(seed)
    prices = random.uniform(0.0, 20.0, len(network.limits)) * random.integers(0, 2, len(network.limits))
    built, lowest_s = {}, left_by_arcs(build_rows(fine), prices, math.inf).lowest_s
    for arc in np.flatnonzero(fine.arcs.is_stage):
        name = name_of(fine.arcs, arc)
        built[name] = min(built.get(name, math.inf), lowest_s[arc])
    found, lowest_s = {}, left_by_arcs(build_rows(network), prices, math.inf).lowest_s
    for arc in np.flatnonzero(network.arcs.is_stage & np.isfinite(lowest_s)):
        name = name_of(network.arcs, arc)
        found[name] = lowest_s[arc]
    assert found.keys() == built.keys()
    for name, each_s in built.items():
        assert math.isclose(found[name], each_s, rel_tol=ROUNDING, abs_tol=ROUNDING)


@LAWS
@given(SMALL)
def test_prices_prove_as_much_as_those_found_once_positions_are_built(problem):
    """On the network with positions, up to the precision to which they are sought."""
    network, fine = both(problem)
    rows = build_rows(fine)

    def proven(prices):
        length = rows.round_trip + arc_prices(rows, prices)
        return rows.network.graph.to_sink(length)[0] - float(prices @ rows.network.limits)

    start = np.zeros(len(network.limits))
    implied, built = (proven(find_host_prices(each, start, stop=lambda: False)) for each in (build_rows(network), rows))
    # Where hosts do not suffice, the price that shows it grows without end.
    assert implied >= built * (1 - 2 * GAIN_TOLERANCE) or implied > 1_000 * proven(start)
