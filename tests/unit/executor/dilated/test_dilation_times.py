"""Planned times, and that they are what the simulator simulates."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import Halves, SublotCut, Sublots, TaskKind
from stagecut.planner.simulator.action_lists import (
    Op,
    interleaved_actions,
    pipeline_actions,
    stage_actions,
    sublot_actions,
)
from stagecut.planner.simulator.compilation import MessageSizes
from stagecut.planner.simulator.engine import iteration_times
from tests.pipelines import pipeline_costs, random_costs, random_interleaved, random_routes

TIMES = PlannedTimes.of(pipeline_costs([1.0, 2.0], [3.0, 5.0], 4.0, micro_batches=3, micro_batch=2))


def test_actions_and_messages_take_their_part_of_a_micro_batch():
    """Stage 1: F = 2 s and B = 5 s for two samples, c = 4 s."""
    assert TIMES.action_s(Op.FORWARD, 1, 2) == 2.0
    assert TIMES.action_s(Op.FORWARD, 1, 1) == 1.0
    assert TIMES.action_s(Op.BACKWARD, 1, 4) == 10.0
    assert TIMES.message_s(Op.FORWARD, 0, 1) == 2.0


def test_halves_of_a_backward_take_half_of_it():
    assert TIMES.action_s(Op.INPUT_GRADIENT, 1, 2) == 2.5
    assert TIMES.action_s(Op.WEIGHT_GRADIENT, 1, 2) == 2.5


def test_sizes_may_have_times_of_their_own():
    """A half forward that takes more than half."""
    times = replace(TIMES, own_s={(TaskKind.FORWARD, 0, 1): 0.7})
    assert times.action_s(Op.FORWARD, 0, 1) == 0.7
    assert times.action_s(Op.FORWARD, 0, 2) == 1.0
    assert times.scaled(10.0).action_s(Op.FORWARD, 0, 1) == 7.0


def test_half_forwards_and_half_messages_are_those_of_the_simulator():
    """0.7 s and 2.5 s for half of F = 1 s and c = 4 s; whole gradients take 4 s. The iteration is the simulated one."""
    halves = Halves(
        forward_s=np.array([0.7, np.inf]), transfer_s=np.array([2.5]), num_halved=np.zeros(2, dtype=np.int64)
    )
    costs = pipeline_costs([1.0, 2.0], [3.0, 5.0], 4.0, micro_batches=3, micro_batch=2, halves=halves).sliced(1)
    times = PlannedTimes.of(costs)
    assert (times.action_s(Op.FORWARD, 0, 1), times.action_s(Op.FORWARD, 0, 2)) == (0.7, 1.0)
    assert (
        times.message_s(Op.FORWARD, 0, 1),
        times.message_s(Op.FORWARD, 0, 2),
        times.scaled(2.0).message_s(Op.FORWARD, 0, 1),
    ) == (2.5, 4.0, 5.0)
    lists = pipeline_actions(costs.warmup_depth.tolist(), 3, 2, costs.num_halved)
    assert times.iteration_s(lists) == iteration_times([costs])[0]


def test_a_scale_must_be_positive():
    with pytest.raises(BadInputError, match="time scale"):
        TIMES.scaled(0.0)


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B])
def test_iterations_of_equal_micro_batches_are_those_of_the_simulator(schedule):
    """Times agree to the last bit, on shared links too; they are twice as long when scaled by two."""
    rng = np.random.default_rng(1)
    for _ in range(20):
        costs = random_costs(rng, random_routes(rng, 10, names=3), schedule=schedule, micro_batches=6, style="real")
        lists = pipeline_actions(costs.warmup_depth.tolist(), 6)
        times = PlannedTimes.of(costs)
        assert times.iteration_s(lists) == iteration_times([costs])[0]
        assert times.scaled(2.0).iteration_s(lists) == 2.0 * iteration_times([costs])[0]


def test_interleaved_iterations_are_those_of_the_simulator():
    """Plans have up to five device groups."""
    rng = np.random.default_rng(2)
    for _ in range(20):
        costs = random_interleaved(rng, names=3, style="real")
        variant = costs.variant
        lists = interleaved_actions(costs.num_devices, variant.chunks, variant.num_microbatches)
        assert PlannedTimes.of(costs).iteration_s(lists) == iteration_times([costs])[0]


def test_a_halved_warm_up_is_simulated_with_its_own_times():
    """One micro-batch of two, forwarded in halves of 0.7 s; messages of 2 s, then 4 s for the gradients.

    Stage 0: halves end at 0.7 and 1.4. They arrive at 2.7 and 4.7; those of stage 1, of 1 s each, end at 3.7 and
    5.7. B there until 10.7, gradients until 14.7, B of stage 0 until 17.7.
    """
    times = replace(TIMES, own_s={(TaskKind.FORWARD, 0, 1): 0.7})
    lists = [stage_actions(stage, [1, 1], [2], depth=2) for stage in range(2)]
    assert times.iteration_s(lists) == pytest.approx(17.7)


def test_sublots_take_the_times_of_their_own_sizes():
    """Two stages, three samples: F [0, 2) takes 1 s and [2, 3) 0.7 s; both leave in one message of 3 s.

    It arrives at 4.7; F of stage 1 until 6.7, B until 11.7; gradients of one sample each take 1 s and arrive at 14.7
    at last; B until 18.
    """
    cut = SublotCut(
        num_samples=3, forward=(2, 3), backward=(3, 3), forward_messages=(3,), backward_messages=(1,), in_flight=(3, 3)
    )
    own_s = {
        (TaskKind.FORWARD, 0, 2): 1.0,
        (TaskKind.FORWARD, 0, 1): 0.7,
        (TaskKind.FORWARD, 1, 3): 2.0,
        (TaskKind.SEND_FORWARD, 0, 3): 3.0,
        (TaskKind.SEND_BACKWARD, 1, 1): 1.0,
        (TaskKind.BACKWARD, 1, 3): 5.0,
        (TaskKind.BACKWARD, 0, 3): 3.3,
    }
    costs = pipeline_costs([1.5, 2.0], [3.3, 5.0], 3.0, micro_batches=1, micro_batch=3)
    costs = replace(costs, sublots=Sublots(cut=cut, seconds=own_s))
    sizes = MessageSizes(forward=(3,), backward=(1,))
    assert PlannedTimes.of(costs).iteration_s(sublot_actions(cut), sizes) == pytest.approx(18.0)
    assert PlannedTimes.of(costs).iteration_s(sublot_actions(cut), sizes) == iteration_times([costs])[0]
