"""The stage network holds exactly the plans of the search space, and its rows are their bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings

from planner.cost.cost_model import CostModel
from planner.network.decode import decode_path
from planner.network.lagrangian import Multipliers, price
from planner.network.rows import SHARED_FAMILIES, build_rows
from planner.network.stage_network import build_network
from planner.simulator.bounds import lower_bound
from planner.solvers.brute_force import all_plans
from tests.property.strategies import problems

LINEAR_FAMILIES = (*SHARED_FAMILIES, "drain", "pair", "link", "flush")
"""All but the late rows, which involve any two stages."""


def paths(network):
    """Every path from source to sink, by depth-first search."""
    outgoing = {}
    for arc, tail in enumerate(network.arcs.tail.tolist()):
        outgoing.setdefault(tail, []).append(arc)
    sink = network.graph.num_nodes - 1
    stack = [(0, ())]
    while stack:
        node, path = stack.pop()
        if node == sink:
            yield np.array(path)
        stack.extend((int(network.arcs.head[arc]), (*path, arc)) for arc in outgoing.get(node, ()))


@settings(max_examples=60)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=3))
def test_paths_are_exactly_the_plans(problem):
    """Decoded paths and the enumeration of brute force are the same set, without repetition."""
    costs = CostModel(problem)
    decoded = [
        plan
        for variant in problem.variants
        for network in [build_network(costs, variant)]
        for path in paths(network)
        if (plan := decode_path(network, path)) is not None
    ]
    assert len(set(decoded)) == len(decoded)
    assert set(decoded) == set(all_plans(problem, costs))


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=3, max_micro_batches=6))
def test_rows_of_a_path_are_the_bounds_of_its_plan(problem):
    """The linear rows over arcs and the formulas over stages give the same number."""
    costs = CostModel(problem)
    for variant in problem.variants:
        network = build_network(costs, variant)
        rows, shared = build_rows(network), build_rows(network, shared_only=True)
        for path in itertools.islice(paths(network), 50):
            plan = decode_path(network, path)
            if plan is None:
                continue
            numbers = costs.plan(plan)
            assert rows.value(path) == pytest.approx(lower_bound(numbers, LINEAR_FAMILIES), rel=1e-12)
            assert shared.value(path) == pytest.approx(lower_bound(numbers, SHARED_FAMILIES), rel=1e-12)


@settings(max_examples=40)
@given(problems(max_layers=4, max_devices=3, max_micro_batches=5))
def test_any_multipliers_give_a_bound_for_every_arc(problem):
    """No path through an arc has smaller rows than the arc's Lagrangian bound."""
    costs = CostModel(problem)
    random = np.random.default_rng(0)
    for variant in problem.variants:
        network = build_network(costs, variant)
        if len(network.arcs) == 0:
            continue
        rows = build_rows(network)
        of_rows = random.random((len(rows.families), network.num_layers + 1))
        for weights, family in zip(of_rows, rows.families, strict=True):
            weights[-1] = 0.0
            if not family.of_layers:
                weights[0] = 0.0
            if family.target:
                weights[:] = 0.0
        total = of_rows.sum()
        priced = price(
            rows,
            Multipliers(of_rows=of_rows / total, of_hosts=random.random(len(network.cluster.servers))),
        )
        for path in itertools.islice(paths(network), 50):
            if decode_path(network, path) is not None:
                assert priced.through_s[path].max() <= rows.value(path) * (1 + 1e-12)
