"""The stage network holds exactly the plans of the search space, and its rows are their bounds."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings

from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.lagrangian import Multipliers, price
from stagecut.planner.network.rows import SHARED_FAMILIES, build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.network_paths import paths_by_plan
from tests.property.strategies import problems

LINEAR_FAMILIES = (*SHARED_FAMILIES, "drain", "pair", "link", "both ways", "flush")
"""All but the late rows, which involve any two stages, and the queue and load rows, which involve a whole host."""
ROUNDING = 1e-12


def networks(problem, costs):
    """The network of every variant, without positions and with."""
    for variant in problem.variants:
        network = build_network(costs, variant)
        yield network, with_positions(network)


def some_plans(chosen):
    """The networks that hold plans, each with the paths of some of them; there must be one."""
    found = [(network, dict(itertools.islice(paths_by_plan(network).items(), 50))) for network in chosen]
    found = [(network, paths) for network, paths in found if paths]
    assume(found)
    return found


@settings(max_examples=30)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=3))
def test_paths_are_exactly_the_plans(problem):
    """The decoded paths are the plans that brute force enumerates, with and without positions."""
    costs = CostModel(problem)
    coarse, fine = set(), set()
    for without, network in networks(problem, costs):
        coarse |= paths_by_plan(without).keys()
        fine |= paths_by_plan(network).keys()
    assert fine == set(all_plans(problem, costs)) == coarse


@settings(max_examples=30)
@given(problems(max_layers=5, max_devices=3, max_micro_batches=6))
def test_rows_of_a_path_are_the_bounds_of_its_plan(problem):
    """The linear rows over arcs and the formulas over stages give the same number."""
    costs = CostModel(problem)
    for network, paths in some_plans(fine for _, fine in networks(problem, costs)):
        rows, shared = build_rows(network), build_rows(network, shared_only=True)
        for plan, path in paths.items():
            numbers = costs.plan(plan)
            assert rows.value(path) == pytest.approx(lower_bound(numbers, LINEAR_FAMILIES), rel=ROUNDING)
            assert shared.value(path) == pytest.approx(lower_bound(numbers, SHARED_FAMILIES), rel=ROUNDING)


@settings(max_examples=30)
@given(problems(max_layers=6, max_devices=3, max_micro_batches=6))
def test_layers_that_the_same_arcs_cover_need_their_rows_once(problem):
    """Over the arcs of two plans: the largest row of both stays, and the layers left are at most all of them."""
    for network, paths in some_plans(fine for _, fine in networks(problem, CostModel(problem))):
        some = list(paths.values())[:2]
        chosen = np.isin(np.arange(len(network.arcs)), np.concatenate(some))
        smaller, kept = network.restricted(chosen)
        rows = build_rows(network).restricted(smaller, kept)
        merged = rows.merged()
        assert merged.network.num_layers <= rows.network.num_layers
        for path in some:
            inside = np.searchsorted(kept, path)
            assert merged.value(inside) == pytest.approx(rows.value(inside), rel=ROUNDING)


@settings(max_examples=30)
@given(problems(max_layers=5, max_devices=3, max_micro_batches=6))
def test_rows_without_positions_are_never_above_those_of_a_plan(problem):
    """Without positions, a stage costs what it would in its cheapest position."""
    costs = CostModel(problem)
    for network, paths in some_plans(coarse for coarse, _ in networks(problem, costs)):
        rows, shared = build_rows(network), build_rows(network, shared_only=True)
        for plan, path in paths.items():
            numbers = costs.plan(plan)
            assert rows.value(path) <= lower_bound(numbers, LINEAR_FAMILIES) * (1 + ROUNDING)
            assert shared.value(path) <= lower_bound(numbers, SHARED_FAMILIES) * (1 + ROUNDING)


@settings(max_examples=30)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=5))
def test_leaving_out_long_stages_loses_no_plan_below_the_limit(problem):
    """The rows of every second plan serve as the limit: all plans at or below it must be there."""
    costs = CostModel(problem)
    every_plan = list(all_plans(problem, costs))
    assume(every_plan)
    for variant in problem.variants:
        plans = [plan for plan in every_plan if plan.variant == variant]
        bounds = [lower_bound(costs.plan(plan), SHARED_FAMILIES) for plan in plans]
        for limit_s in sorted(bounds)[:4:2]:
            network = build_network(costs, variant, longest_s=limit_s)
            for left in (network, with_positions(network, longest_s=limit_s)):
                found = paths_by_plan(left).keys()
                assert all(plan in found for plan, bound_s in zip(plans, bounds, strict=True) if bound_s <= limit_s)


@settings(max_examples=25)
@given(problems(max_layers=4, max_devices=3, max_micro_batches=5))
def test_any_multipliers_give_a_bound_for_every_arc(problem):
    """No path through an arc has smaller rows than the arc's Lagrangian bound."""
    costs = CostModel(problem)
    random = np.random.default_rng(0)
    for network, paths in some_plans(itertools.chain.from_iterable(networks(problem, costs))):
        rows = build_rows(network)
        of_rows = random.random((len(rows.families), network.num_layers + 1))
        for weights, family in zip(of_rows, rows.families, strict=True):
            weights[-1] = 0.0
            if family.ending_s is not None:
                weights[0] = 0.0
            if family.target:
                weights[:] = 0.0
        total = of_rows.sum()
        priced = price(
            rows,
            Multipliers(of_rows=of_rows / total, of_hosts=random.random(len(network.cluster.servers))),
        )
        for path in paths.values():
            assert priced.through_s[path].max() <= rows.value(path) * (1 + ROUNDING)
