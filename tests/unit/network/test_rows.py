"""Bound rows over arcs: the largest one, and what multipliers charge an arc."""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.rows import SHARED_FAMILIES, build_rows
from tests.catalogue import CATALOGUE
from tests.network_paths import coarse_network, plan_paths, positioned_network
from tests.property.strategies import problems


def rows_of(problem, **choices):
    return build_rows(positioned_network(problem), **choices)


def single_rows(rows):
    """Multipliers of each row alone, with the target it belongs to."""
    for index, family in enumerate(rows.families):
        layers = range(rows.network.num_layers) if family.ending_s is None else range(1, rows.network.num_layers)
        for row in layers:
            multipliers = np.zeros((len(rows.families), rows.network.num_layers + 1))
            multipliers[index, row] = 1.0
            yield family.target, rows.arc_costs(multipliers)


@settings(max_examples=40)
@given(problems(max_layers=4, max_devices=3, max_micro_batches=4))
def test_value_is_the_largest_row_charged_alone(problem):
    """The halves of a flush are added up."""
    rows = rows_of(problem)
    charged, paths = list(single_rows(rows)), plan_paths(rows.network)[:40]
    assume(paths)
    for path in paths:
        halves = [-np.inf] * 3
        for target, costs in charged:
            halves[target] = max(halves[target], costs[path].sum())
        assert rows.value(path) == pytest.approx(max(halves[0], halves[1] + halves[2]), rel=1e-12, abs=1e-12)


def test_no_path_has_no_finite_value():
    assert rows_of(CATALOGUE[0].problem).value(np.empty(0, dtype=np.int64)) == np.inf


def test_shared_rows_are_those_every_exact_solver_has():
    rows = rows_of(CATALOGUE[0].problem, shared_only=True)
    assert tuple(family.name for family in rows.families) == SHARED_FAMILIES


@pytest.mark.parametrize(
    ("schedule", "further"),
    [
        (Schedule.ONE_F_ONE_B, {"pair"}),
        (Schedule.EAGER_ONE_F_ONE_B, {"pair"}),
        (
            Schedule.GPIPE,
            {"flush forward", "flush forward link", "flush backward", "flush backward link"},
        ),
    ],
)
def test_every_schedule_has_the_rows_that_hold_for_it(schedule, further):
    known = next(known for known in CATALOGUE if known.name == f"two equal devices, {schedule}")
    names = {family.name for family in rows_of(known.problem).families}
    assert names == {*SHARED_FAMILIES, "drain", "link", *further}


def test_without_positions_there_are_no_pair_rows():
    """Pair rows need the depths of two neighbours."""
    known = next(known for known in CATALOGUE if known.name == "heterogeneous chain")
    names = {family.name for family in build_rows(coarse_network(known.problem)).families}
    assert names == {*SHARED_FAMILIES, "drain", "link"}


def test_floor_of_the_bottleneck_raises_the_fill_rows():
    """4 micro-batches of 3 layers of 2 s in one stage: 6 + 3 x 6; at least 20 beside the total makes 26."""
    rows = rows_of(CATALOGUE[0].problem)
    (path,) = plan_paths(rows.network)
    assert rows.value(path) == rows.with_floor(18.0).value(path) == 24.0
    assert rows.with_floor(20.0).value(path) == 26.0


def test_scaled_rows_scale_the_value():
    rows = rows_of(CATALOGUE[0].problem)
    (path,) = plan_paths(rows.network)
    assert rows.scaled(0.25).value(path) == 0.25 * rows.value(path) == 6.0


def test_restricted_rows_keep_the_value_of_their_paths():
    rows = rows_of(next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain"))
    path = plan_paths(rows.network)[-1]
    network, kept = rows.network.restricted(np.isin(np.arange(len(rows.network.arcs)), path))
    small = rows.restricted(network, kept)
    assert kept.tolist() == sorted(path)
    (same_path,) = plan_paths(network)
    assert small.value(same_path) == rows.value(path)
