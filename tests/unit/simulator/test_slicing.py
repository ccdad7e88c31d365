"""Halved warm-up micro-batches: when things start, and how many pay."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.job import AUTO
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import Halves, TaskKind
from stagecut.planner.simulator.action_lists import plan_actions
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.slicing import paying_count, slicing_faults
from stagecut.planner.simulator.timeline import simulate
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.pipelines import pipeline_costs
from tests.unit.cost.test_legality import problem


def sliceable(num_stages, *, overhead_s=0.0, transfer_s=0.0, half_transfer_s=0.0, cannot=(), **options):
    """Stages of F = 1 and B = 2 with micro-batches of two samples, twice as many as stages."""
    forward_s = np.full(num_stages, 0.5 + overhead_s)
    forward_s[list(cannot)] = np.inf
    halves = Halves(
        forward_s=forward_s,
        transfer_s=np.full(num_stages - 1, half_transfer_s),
        num_halved=np.zeros(num_stages, dtype=np.int64),
    )
    chosen = {"micro_batches": 2 * num_stages, "micro_batch": 2} | options
    return pipeline_costs([1] * num_stages, [2] * num_stages, transfer_s, halves=halves, **chosen)


def time_of(costs):
    return float(iteration_times([costs])[0])


@pytest.mark.parametrize(
    ("num_stages", "unsliced_s", "num_sliced", "sliced_s"),
    [(4, 33.0, 1, 31.5), (8, 69.0, 2, 65.5), (12, 105.0, 3, 99.5)],
)
def test_the_smallest_count_that_saves_all_there_is_to_save(num_stages, unsliced_s, num_sliced, sliced_s):
    """(M + p - 1) (F + B) unsliced; the start-up of (p - 1) F is halved; more halves save no more."""
    costs = sliceable(num_stages)
    assert time_of(costs) == unsliced_s == (3 * num_stages - 1) * 3
    assert sliced_s == unsliced_s - (num_stages - 1) / 2
    assert paying_count(costs, unsliced_s) == (num_sliced, sliced_s)
    assert time_of(costs.sliced(num_sliced - 1)) > sliced_s
    for more in range(num_sliced, 2 * num_stages + 1):
        assert time_of(costs.sliced(more)) == sliced_s == lower_bound(costs.sliced(more))


def test_under_gpipe_halves_save_nothing_unless_all_are_halved():
    """A whole last micro-batch passes all stages before the first backward: 8 + 3 s, and 8 + 1.5 s in halves."""
    costs = sliceable(4, schedule=Schedule.GPIPE)
    assert [time_of(costs.sliced(num_sliced)) for num_sliced in (0, 1, 7, 8)] == [33.0, 33.0, 33.0, 31.5]
    assert paying_count(costs, 33.0) == (0, 33.0)


def test_an_action_overhead_of_half_a_forward_makes_slicing_useless():
    """Halves as long as the whole: the first half comes no sooner than the whole would."""
    costs = sliceable(8, overhead_s=0.5)
    assert paying_count(costs, time_of(costs)) == (0, 69.0)


def test_a_small_overhead_is_paid_once_per_stage():
    """Start-up 7 x 0.6 in place of 7; two halves of the first micro-batch take 0.2 more than the whole."""
    costs = sliceable(8, overhead_s=0.1)
    first = simulate(costs.sliced(1))
    starts_s = first.start_s[(first.kind == TaskKind.FORWARD) & (first.stage == 7)]
    assert starts_s.min() == pytest.approx(7 * 0.6)
    assert 0 < paying_count(costs, 69.0)[0] < 3


@pytest.mark.parametrize("num_stages", [2, 4, 8])
@pytest.mark.parametrize("schedule", [Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B, Schedule.GPIPE])
def test_the_start_up_of_the_last_stage_is_halved(num_stages, schedule):
    """Its first forward starts after (p - 1)(F / 2 + c / 2) in place of (p - 1)(F + c)."""
    costs = sliceable(num_stages, transfer_s=0.5, half_transfer_s=0.25, schedule=schedule)

    def start_up_s(plan):
        timeline = simulate(plan)
        return float(timeline.start_s[(timeline.kind == TaskKind.FORWARD) & (timeline.stage == num_stages - 1)].min())

    assert start_up_s(costs) == 1.5 * (num_stages - 1)
    assert start_up_s(costs.sliced(1)) == 0.75 * (num_stages - 1)


def test_a_stage_that_cannot_halve_waits_for_both_halves():
    """Stage 1 of three plays whole micro-batches: F on stage 0 in halves until 1, on stage 1 whole from 1 to 2."""
    timeline = simulate(sliceable(3, cannot=[1]).sliced(1))
    forwards = timeline.kind == TaskKind.FORWARD
    first = [timeline.start_s[forwards & (timeline.stage == stage)].min() for stage in range(3)]
    assert first == [0.0, 1.0, 2.0]
    assert [np.count_nonzero(forwards & (timeline.stage == stage)) for stage in range(3)] == [7, 6, 7]


def test_only_forwards_of_the_own_warm_up_are_halved():
    """Depths 3, 2, 1 and two sliced micro-batches: two on the first two stages, one on the last."""
    plan = replace(plan_of((0, 1, 2, 3), num_microbatches=4), num_sliced=2)
    assert plan.num_halved == (2, 2, 1)
    counts = [sum(action.hi - action.lo == 1 for action in own) for own in plan_actions(plan)]
    assert counts == [4, 4, 2]


def test_replicas_that_cannot_share_half_a_micro_batch_play_it_whole():
    """Two samples over two replicas: one each, and none of half a sample."""
    assert replace(plan_of((0, 1, 2), replicas=(1, 2)), num_sliced=1).num_halved == (1, 0)


def test_memory_is_that_of_whole_micro_batches():
    """Two halves are kept like a whole, and the depth is the same."""
    costs = sliceable(3, saved_bytes=np.array([8.0, 4.0, 2.0]), working_bytes=np.ones(3))
    timeline = simulate(costs.sliced(3))
    assert timeline.memory_high_water_bytes.tolist() == costs.memory_bytes.tolist() == [25.0, 9.0, 3.0]


def test_the_count_of_a_plan_is_checked_against_the_rule():
    """Two stages of 2 s forward: the second starts 1 s sooner, and nothing is gained by a second one."""
    chosen = problem(slice=AUTO, action_overhead_s=0.0, pipelines=(1,), tensor_parallel=(1,))
    costs = CostModel(chosen)
    plan = next(p for p in all_plans(chosen, costs) if [stage.stop for stage in p.stages] == [2, 4])
    count, _ = paying_count(costs.plan(plan), time_of(costs.plan(plan)))
    assert count == 1
    assert list(slicing_faults(costs, replace(plan, num_sliced=1))) == []
    assert list(slicing_faults(costs, plan)) == ["0 halved micro-batches, where 1 pay"]
