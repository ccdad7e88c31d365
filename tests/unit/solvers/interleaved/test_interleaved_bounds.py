"""Costs of cuts, linear rows, weights and branching of single shapes, against enumeration."""

from itertools import islice

import numpy as np
import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.simulator.bounds import bound_rows, lower_bound
from stagecut.planner.solvers.interleaved.branching import Branching
from stagecut.planner.solvers.interleaved.costs import ChunkCosts, Cost
from stagecut.planner.solvers.interleaved.linear_rows import row_forms
from stagecut.planner.solvers.interleaved.relaxation import least_values, relax
from stagecut.planner.solvers.interleaved.shapes import floor_s, interleaved_plan
from tests.catalogue import WEIGHTS_ONLY, chain, job, one_server
from tests.property.strategies import problems
from tests.unit.solvers.interleaved.test_interleaved_shapes import all_stops, interleaved, shapes_with_costs

ROUNDING = 1e-9
SHARED = ("busy", "fill", "sync")
SMALL = problems(max_layers=6, max_micro_batches=6).map(interleaved)


def never():
    return False


def cases(problem, *, count=8):
    """Some shapes with all their cuts, shape (n, S), and the plan of each cut that fits; there must be one."""
    found = []
    for costs, shape in islice(shapes_with_costs(problem), count):
        cuts = np.array(list(all_stops(problem, shape)))
        found.append((costs, shape, cuts, plans_of(costs, shape, cuts)))
    assume(any(plan is not None for *_, plans in found for plan in plans))
    return found


def plans_of(costs, shape, cuts):
    return [interleaved_plan(costs, shape, stops) for stops in cuts.tolist()]


def relaxed(costs, shape, rows):
    chunks = ChunkCosts(costs, shape)
    scale_s = max(1.0, floor_s(costs, shape))
    return chunks, relax(chunks, rows, scale_s=scale_s, enough_s=np.inf, time_limit_s=10.0, stop=never)


@settings(max_examples=25)
@given(SMALL)
def test_costs_and_memory_of_cuts_are_those_of_their_plans(problem):
    for costs, shape, cuts, plans in cases(problem):
        chunks = ChunkCosts(costs, shape)
        modes, fits = chunks.settled(cuts)
        table = chunks.of_cuts(cuts, modes)
        for index, plan in enumerate(plans):
            assert (plan is not None) == fits[index]
            if plan is None:
                continue
            assert [stage.recompute for stage in plan.stages[: shape.num_groups]] == [
                chunks.recompute[mode] for mode in modes[index]
            ]
            numbers = costs.plan(plan)
            np.testing.assert_allclose(table[index, :, Cost.FORWARD], numbers.forward_s)
            np.testing.assert_allclose(table[index, :, Cost.BACKWARD], numbers.backward_s)
            np.testing.assert_allclose(table[index, :, Cost.TAIL], numbers.sync_s + numbers.update_s)
            np.testing.assert_allclose(table[index, :-1, Cost.TRANSFER], numbers.transfer_s)
            for group in range(shape.num_groups):
                needed = chunks.memory_bytes(group, cuts[[index]], modes[[index], group])
                np.testing.assert_allclose(needed, numbers.memory_bytes[group])


@settings(max_examples=25)
@given(SMALL)
def test_linear_rows_are_never_above_the_rows_of_a_plan(problem):
    """Busy and sync rows are the same, whose only maximum is over chunks."""
    for costs, shape, cuts, plans in cases(problem):
        chunks, rows = ChunkCosts(costs, shape), row_forms(costs, shape, shared_only=False)
        modes, _ = chunks.settled(cuts)
        table = chunks.of_cuts(cuts, modes)
        num_busy = shape.num_groups * shape.variant.chunks**2
        for plan, values in zip(plans, np.tensordot(table, rows, axes=((1, 2), (1, 2))), strict=True):
            if plan is None:
                continue
            exact = bound_rows(costs.plan(plan))
            assert values.max() <= lower_bound(costs.plan(plan)) * (1 + ROUNDING)
            assert values[:num_busy].max() == pytest.approx(exact["busy"].max(), rel=ROUNDING)
            num_sync = shape.num_stages
            assert values[num_busy : num_busy + num_sync].max() == pytest.approx(exact["sync"].max(), rel=ROUNDING)


@settings(max_examples=30)
@given(SMALL)
def test_least_value_of_a_form_is_that_of_the_best_cut(problem):
    """With a single recompute mode, for every row of the whole model; measured tails are bounded from below."""
    measured = any(island.all_reduce for server in problem.cluster.servers for island in server.islands)
    for costs, shape, cuts, _ in cases(problem):
        chunks, rows = ChunkCosts(costs, shape), row_forms(costs, shape, shared_only=False)
        if len(chunks.recompute) == 1:
            table = chunks.of_cuts(cuts, np.zeros_like(cuts))
            least = np.tensordot(table, rows, axes=((1, 2), (1, 2))).min(axis=0)
            found = least_values(chunks, rows)[0, 0]
            assert np.all(found <= least + ROUNDING * np.abs(least) + 1e-9)
            if not measured:
                np.testing.assert_allclose(found, least, rtol=ROUNDING, atol=1e-9)


@settings(max_examples=25)
@given(SMALL)
def test_weights_never_prove_more_than_the_plan_of_the_least_rows(problem):
    for costs, shape, _, plans in cases(problem, count=3):
        least_s = min((lower_bound(costs.plan(plan)) for plan in plans if plan is not None), default=np.inf)
        _, relaxation = relaxed(costs, shape, row_forms(costs, shape, shared_only=False))
        assert relaxation.bound_s <= least_s * (1 + ROUNDING)


@settings(max_examples=25)
@given(SMALL)
def test_branching_without_a_limit_hands_out_every_cut_that_fits(problem):
    for costs, shape, cuts, plans in cases(problem, count=3):
        rows = row_forms(costs, shape, shared_only=False)
        chunks, relaxation = relaxed(costs, shape, rows)
        branching, found = Branching(chunks, rows, relaxation), set()
        while branching.bound_s < np.inf:
            found |= set(map(tuple, branching.advance(np.inf, max_batches=1, stop=never).tolist()))
        fitting = {tuple(stops) for stops, plan in zip(cuts.tolist(), plans, strict=True) if plan is not None}
        assert fitting <= found


@settings(max_examples=25)
@given(SMALL)
def test_branching_hands_out_every_cut_below_a_limit_while_its_bound_rises(problem):
    """The limit is the middle one of the rows of all plans; targets rise towards it."""
    for costs, shape, cuts, plans in cases(problem, count=3):
        values_s = [np.inf if plan is None else lower_bound(costs.plan(plan)) for plan in plans]
        limit_s = sorted(values_s)[len(values_s) // 2]
        rows = row_forms(costs, shape, shared_only=True)
        chunks, relaxation = relaxed(costs, shape, rows)
        branching, found, before_s = Branching(chunks, rows, relaxation), set(), 0.0
        while branching.bound_s < limit_s:
            found |= set(map(tuple, branching.advance(limit_s, max_batches=1, stop=never).tolist()))
            left = [value for stops, value in zip(cuts.tolist(), values_s, strict=True) if tuple(stops) not in found]
            assert before_s <= min(branching.bound_s, limit_s) <= max(limit_s, 0.0)
            assert min(branching.bound_s, limit_s) <= min([limit_s, *left]) * (1 + ROUNDING)
            before_s = branching.bound_s


def test_too_many_nodes_end_the_proof(monkeypatch):
    problem = Problem(
        model=chain(8, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(4, schedule=Schedule.INTERLEAVED)
    )
    *_, (costs, shape) = shapes_with_costs(problem)
    rows = row_forms(costs, shape, shared_only=False)
    chunks, relaxation = relaxed(costs, shape, rows)
    monkeypatch.setattr("stagecut.planner.solvers.interleaved.branching.MAX_NODES", 1)
    branching = Branching(chunks, rows, relaxation)
    branching.advance(np.inf, max_batches=1, stop=never)
    assert branching.overfull
    assert branching.bound_s == relaxation.bound_s
    assert len(branching.advance(np.inf, max_batches=9, stop=never)) == 0


def test_memory_of_all_groups_together_can_show_that_nothing_fits():
    """Four layers of 2 bytes on two devices of 3."""
    problem = Problem(
        model=chain(4, {"gpu": 1.0}, params_bytes=4.0),
        cluster=one_server("gpu", 2, memory_bytes=3.0),
        job=job(4, schedule=Schedule.INTERLEAVED, optimizer=WEIGHTS_ONLY),
    )
    *_, (costs, shape) = shapes_with_costs(problem)
    assert relaxed(costs, shape, row_forms(costs, shape, shared_only=False))[1].bound_s == np.inf


def test_plans_of_cuts_are_legal():
    problem = Problem(
        model=chain(4, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(4, schedule=Schedule.INTERLEAVED)
    )
    for costs, shape in shapes_with_costs(problem):
        plans = plans_of(costs, shape, np.array(list(all_stops(problem, shape))))
        assert all(faults(CostModel(problem), plan) == () for plan in plans)
