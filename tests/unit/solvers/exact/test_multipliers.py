"""Multipliers of the linear relaxation: valid, and no worse than those given."""

from hypothesis import assume, given, settings

from stagecut.planner.network.lagrangian import price, single_family
from stagecut.planner.network.rows import SHARED_FAMILIES, build_rows
from stagecut.planner.solvers.exact.multipliers import improve_multipliers
from tests.catalogue import CATALOGUE
from tests.network_paths import plan_paths, positioned_network
from tests.property.strategies import problems


def rows_of(problem):
    return build_rows(positioned_network(problem))


def improved(rows, start, *, scale_s, stop=lambda: False):
    return improve_multipliers(rows, start, scale_s=scale_s, time_limit_s=60.0, stop=stop)


@settings(max_examples=40)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=5))
def test_bound_lies_between_single_families_and_the_least_rows(problem):
    """The bounds over all arcs, and over every plan through each arc."""
    rows = rows_of(problem)
    values = {tuple(path): rows.value(path) for path in plan_paths(rows.network)}
    assume(values)
    for family in SHARED_FAMILIES:
        start = price(rows, single_family(rows, family))
        best = improved(rows, start, scale_s=min(values.values()) or 1.0)
        assert start.bound_s <= best.bound_s <= min(values.values()) * (1 + 1e-12)
        for path, value_s in values.items():
            assert best.through_s[list(path)].max() <= value_s * (1 + 1e-12)


def heterogeneous_chain():
    return rows_of(next(known.problem for known in CATALOGUE if known.name == "heterogeneous chain"))


def test_bound_rises_above_every_single_family():
    """The best plan takes 20 s; the relaxation may mix stages, but not reach for less than one family proves."""
    rows = heterogeneous_chain()
    singles = [price(rows, single_family(rows, name)) for name in SHARED_FAMILIES]
    best = improved(rows, singles[0], scale_s=20.0)
    assert max(single.bound_s for single in singles) < best.bound_s <= 20.0


def test_nothing_is_done_once_stopped():
    rows = heterogeneous_chain()
    start = price(rows, single_family(rows, "fill"))
    assert improved(rows, start, scale_s=20.0, stop=lambda: True) is start
