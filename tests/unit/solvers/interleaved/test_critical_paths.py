"""Rows from critical paths, against the simulated times of all cuts of a shape."""

import numpy as np
from hypothesis import given, settings

from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.interleaved.costs import ChunkCosts
from stagecut.planner.solvers.interleaved.critical_paths import CriticalPaths
from stagecut.planner.solvers.interleaved.linear_rows import row_forms, ways_home
from stagecut.planner.solvers.interleaved.relaxation import relax
from stagecut.planner.solvers.interleaved.shapes import floor_s
from tests.catalogue import chain, job, one_server
from tests.unit.solvers.interleaved.test_interleaved_bounds import ROUNDING, SMALL, cases, never, plans_of
from tests.unit.solvers.interleaved.test_interleaved_shapes import all_stops, shapes_with_costs


def tables_and_times(costs, shape, cuts, plans):
    """Costs of the stages, and the simulated time, of the cuts that fit; shape (n, S, costs) and (n,)."""
    chunks = ChunkCosts(costs, shape)
    modes, fits = chunks.settled(cuts)
    times_s = iteration_times([costs.plan(plan) for plan in plans if plan is not None])
    return chunks.of_cuts(cuts, modes)[fits], times_s


@settings(max_examples=40)
@given(SMALL)
def test_the_critical_path_of_one_cut_is_never_above_the_time_of_any_other(problem):
    for costs, shape, cuts, plans in cases(problem):
        tables, times_s = tables_and_times(costs, shape, cuts, plans)
        paths = CriticalPaths(shape, ways_home(costs, shape))
        for table in tables[:6]:
            values_s = np.tensordot(tables, paths.row(table), axes=((1, 2), (0, 1)))
            assert np.all(values_s <= times_s * (1 + ROUNDING))


@settings(max_examples=25)
@given(SMALL)
def test_weights_on_critical_paths_never_prove_more_than_the_fastest_plan(problem):
    for costs, shape, cuts, plans in cases(problem, count=3):
        _, times_s = tables_and_times(costs, shape, cuts, plans)
        relaxation = relax(
            ChunkCosts(costs, shape),
            row_forms(costs, shape, shared_only=False),
            scale_s=max(1.0, floor_s(costs, shape)),
            enough_s=np.inf,
            time_limit_s=10.0,
            stop=never,
            paths=CriticalPaths(shape, ways_home(costs, shape)),
        )
        assert relaxation.bound_s <= min(times_s, default=np.inf) * (1 + ROUNDING)
        assert len(relaxation.of_rows) >= len(relaxation.found)


def test_where_nothing_is_shared_the_critical_path_of_a_cut_is_its_time():
    """Two devices without replicas do no all-reduces, and one fabric that is not shared carries all messages."""
    problem = Problem(
        model=chain(6, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(4, schedule=Schedule.INTERLEAVED)
    )
    for costs, shape in shapes_with_costs(problem):
        cuts = np.array(list(all_stops(problem, shape)))
        tables, times_s = tables_and_times(costs, shape, cuts, plans_of(costs, shape, cuts))
        paths = CriticalPaths(shape, ways_home(costs, shape))
        for table, seconds in zip(tables, times_s, strict=True):
            np.testing.assert_allclose(np.sum(paths.row(table) * table), seconds, rtol=ROUNDING)
