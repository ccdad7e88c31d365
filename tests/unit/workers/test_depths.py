"""Depths of stages: what the rows ask for, what memory allows, and which are played."""

from itertools import product

import numpy as np
import pytest

from stagecut.planner.cost.stage_costs import StageCosts
from stagecut.planner.simulator.waves.steady import steady_state
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.building import plan_of, seats_of, worker_of
from stagecut.planner.workers.rows.chain_program import Chain
from stagecut.planner.workers.rows.depths import all_depths, depth_choices, monotone
from stagecut.planner.workers.rows.row_tables import DEEPEST, Setting, most_in_memory
from stagecut.planner.workers.rows.worker_rows import WorkerRows
from stagecut.planner.workers.solving import solve_waves
from tests.unit.workers.test_chain_programs import chains_of
from tests.unit.workers.test_wave_policies import hetpipe_16, without
from tests.unit.workers.test_wave_solving import fast_and_slow

SETTING = Setting.of(4, num_workers=1)


@pytest.fixture(scope="module")
def chains():
    """TITAN V and Quadro P4000; a single worker over both queues nowhere."""
    return chains_of(without(hetpipe_16(), 1, 2))


def wave_s(chains, chain, depths):
    """Simulated seconds of a wave of one worker."""
    (seats,) = seats_of(chains.kinds.cluster, [(1, 1)])
    plan = plan_of(chains.tables, (worker_of(chains.tables, SETTING, chain, depths, seats),))
    return steady_state(chains.tables.model.plan(plan)).wave_s


@pytest.mark.parametrize(("cut", "depths"), list(product((9, 12, 16), all_depths((4, 3)))))
def test_a_worker_alone_makes_exactly_the_period_of_its_rows(chains, cut, depths):
    chain = Chain(kinds=(0, 1), stops=(cut, 19))
    rows, period_s = WorkerRows(chains, SETTING, chain), wave_s(chains, chain, depths)
    assert rows.least_depths(period_s * (1 + 1e-9), depths) == depths
    assert rows.least_depths(period_s * (1 - 1e-6), depths) is None


@pytest.mark.parametrize("cut", [9, 12, 16])
def test_no_depths_keep_a_period_that_the_least_ones_do_not(chains, cut):
    chain = Chain(kinds=(0, 1), stops=(cut, 19))
    rows = WorkerRows(chains, SETTING, chain)
    for factor in (1.0, 1.1, 1.5, 2.0):
        least = rows.least_depths(rows.period_s * factor)
        keeping = [own for own in all_depths((4, 4)) if rows.least_depths(rows.period_s * factor, own)]
        assert least in keeping
        assert all(a <= b for own in keeping for a, b in zip(least, own, strict=True))


def test_depths_that_are_played_fit_and_never_rise(chains):
    rows = WorkerRows(chains, SETTING, Chain(kinds=(0, 1), stops=(9, 19)))
    for depths in depth_choices(rows, SETTING, rows.period_s):
        assert list(depths) == sorted(depths, reverse=True)
        assert all(rows.option(index, depth) is not None for index, depth in enumerate(depths))


def test_a_changed_depth_takes_its_neighbours_with_it():
    assert monotone((5, 3, 1), 1, 6) == (6, 6, 1)
    assert monotone((5, 3, 3), 1, 2) == (5, 2, 2)


def test_all_depths_are_those_that_never_rise():
    assert sorted(all_depths((3, 2))) == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2)]


def test_as_many_minibatches_as_memory_has_room_for():
    # 10 B of 16 remain: 2 of 4 B with 1 B to work with, 9 of 1 B, any number of 0 B; 17 B do not fit at all.
    columns = {"static_bytes": [6, 6, 6, 17], "saved_bytes": [4, 1, 0, 1], "working_bytes": [1, 1, 1, 1]}
    zeros = np.zeros(4)
    costs = StageCosts(
        forward_s=zeros,
        backward_s=zeros,
        sync_s=zeros,
        update_s=zeros,
        **{name: np.array(values, dtype=float) for name, values in columns.items()},
    )
    assert most_in_memory(costs, 16.0).tolist() == [2, 9, DEEPEST, 0]


def test_a_stated_number_in_flight_is_taken_as_it_is():
    # Two workers of one device each: 4 S - 3 = 1 would be the most that is chosen.
    plan = solve_waves(fast_and_slow(in_flight=7, num_workers=2), SolveOptions()).plan
    assert [worker.in_flight for worker in plan.workers] == [7, 7]
