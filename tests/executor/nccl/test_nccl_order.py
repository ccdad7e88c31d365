"""Plans play to the end under NCCL's rules, on devices with few launch queues, with the gradients of one process."""

import random
from dataclasses import replace
from functools import partial

import pytest

from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.simulator.action_lists import Action, Op, stage_actions
from tests.executor.nccl.emulated_nccl import DeadlockError, Fabric, Hold
from tests.executor.nccl.nccl_plays import NUM_LAYERS, TOLERANCE, batch_of, built, execution_of, worst_difference
from tests.executor.plans import random_plan

FOUR = (0, 1, 3, 4, 6)
PLANS = {
    "gpipe": plan_of(FOUR, schedule=Schedule.GPIPE, num_microbatches=6),
    "1f1b": plan_of(FOUR, num_microbatches=6),
    "fewer micro-batches than stages": plan_of(FOUR, num_microbatches=2),
    "eager 1f1b": plan_of(FOUR, schedule=Schedule.EAGER_ONE_F_ONE_B, num_microbatches=8),
    "two chunks": plan_of((0, 1, 3, 5, 6), schedule=Schedule.INTERLEAVED, chunks=2, num_microbatches=4),
    "three chunks": plan_of(range(7), schedule=Schedule.INTERLEAVED, chunks=3, num_microbatches=4),
    "sliced": replace(plan_of(FOUR, num_microbatches=6), num_sliced=3),
    "unequal sizes": plan_of(
        (0, 2, 4, 6), micro_batch=6, num_microbatches=3, sizes=((1, 6), (6, 6), (2, 2)), replicas=(1, 2, 1)
    ),
    "messages that cut and gather": plan_of(
        FOUR,
        schedule=Schedule.GPIPE,
        micro_batch=10,
        num_microbatches=1,
        sizes=((2, 4), (3, 9), (1, 10), (5, 5)),
        messages=((7, 1), (4, 4), (None, 3)),
        replicas=(1, 2, 1, 2),
    ),
    "replicas": plan_of((0, 2, 4, 6), micro_batch=6, num_microbatches=4, replicas=(2, 1, 3)),
    "shared replicas": plan_of((0, 2, 4, 6), num_microbatches=5, replicas=(1, 2, 1), tensor_parallel=(2, 1, 2)),
    "several pipelines": plan_of((0, 2, 4, 6), num_microbatches=4, num_pipelines=3),
    "recomputed": plan_of((0, 3, 6), num_microbatches=4, recompute=(True, True), tensor_parallel=(2, 2)),
    "everything": plan_of(
        (0, 1, 3, 5, 6),
        schedule=Schedule.INTERLEAVED,
        chunks=2,
        num_microbatches=4,
        replicas=(2, 1),
        tensor_parallel=(1, 2),
        recompute=(True, False, True, False),
        num_pipelines=2,
    ),
}
"""Weights of the first and the last stage are tied in all of them."""


@pytest.mark.parametrize("num_queues", (1, 8))
@pytest.mark.parametrize("name", PLANS)
def test_every_schedule_plays_to_the_end(name: str, num_queues: int) -> None:
    """Each kernel is in the way of all behind it in its queue until it has ended, which is more than hardware does."""
    assert worst_difference(PLANS[name], num_queues=num_queues) < TOLERANCE


@pytest.mark.parametrize("hold", Hold)
@pytest.mark.parametrize("num_queues", (1, 2, 8))
def test_random_plans_play_to_the_end(num_queues: int, hold: Hold) -> None:
    """A bit of everything, on up to eight ranks."""
    draw = random.Random(f"{num_queues} {hold.name}")
    for _ in range(4):
        plan = random_plan(draw, num_layers=NUM_LAYERS, max_ranks=8)
        assert worst_difference(plan, num_queues=num_queues, hold=hold) < TOLERANCE, plan


def test_lists_of_ones_own_play_to_the_end() -> None:
    """Halved micro-batches, unequal shares, one of them empty, and split backwards."""
    halved = [stage_actions(stage, [2, 2, 4, 4, 4], [4, 4, 4, 4], depth=4 * (3 - stage)) for stage in range(3)]
    plan = plan_of((0, 2, 4, 6), micro_batch=4, num_microbatches=4, replicas=(1, 2, 1))
    assert worst_difference(plan, num_queues=1, options={"actions": halved}) < TOLERANCE
    plan = plan_of((0, 3, 6), micro_batch=3, num_microbatches=4, replicas=(2, 3))
    assert worst_difference(plan, num_queues=1, options={"shares": ((1, 2), (3, 1, 1))}) < TOLERANCE
    samples = [(2 * index, 2 * index + 2) for index in range(3)]
    ops = (Op.FORWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT)
    split = [[Action(op, stage, lo, hi) for op in ops for lo, hi in samples] for stage in range(3)]
    plan = plan_of((0, 2, 4, 6), schedule=Schedule.GPIPE, num_microbatches=3)
    assert worst_difference(plan, num_queues=1, options={"actions": split}) < TOLERANCE


@pytest.mark.parametrize("name", PLANS)
def test_room_for_a_single_waiting_kernel_is_enough(name: str) -> None:
    """Kernels start in the order in which they were begun, as NCCL_LAUNCH_ORDER_IMPLICIT has it."""
    rules = {"num_queues": 8, "hold": Hold.UNTIL_STARTED, "room": 1, "eager": True}
    assert worst_difference(PLANS[name], **rules) < TOLERANCE


def test_kernels_that_start_in_any_order_may_leave_no_room_for_the_first() -> None:
    """Why `join_world` asks NCCL to start them in the order in which they were begun.

    Which kernels come first is up to the threads: each of these plans hangs in nearly all tries.
    """
    assert any(map(_hangs_in_any_order, ("three chunks", "two chunks", "everything", "replicas")))


def _hangs_in_any_order(name: str) -> bool:
    try:
        worst_difference(PLANS[name], num_queues=8, hold=Hold.UNTIL_STARTED, room=1, in_order=False)
    except DeadlockError:
        return True
    return False


@pytest.mark.parametrize("name", ("1f1b", "two chunks", "shared replicas"))
def test_communicators_may_be_set_up_when_they_are_first_used(name: str) -> None:
    """The order is enough: setting them up before only keeps that out of the first step."""
    build = partial(built, connects=False)
    assert worst_difference(PLANS[name], num_queues=1, build=build) < TOLERANCE


def test_every_communicator_is_set_up_before_the_first_step() -> None:
    """A step holds up no host for that: after `connect` all pairs and groups have met."""
    execution = execution_of(PLANS["everything"])
    fabric = Fabric(execution.layout.world_size, num_queues=8)
    fabric.run(partial(built, execution=execution))
    before = set(fabric.connected())
    batch = batch_of(PLANS["everything"])
    fabric = Fabric(execution.layout.world_size, num_queues=8)
    fabric.run(lambda rank: built(rank, execution).step(batch))
    assert before == set(fabric.connected())
