"""Action lists: what each device group runs, in which order.

An action is the forward or backward, on one stage, of a range of samples [lo, hi) of the pipeline's
part of the global batch. Ranges make equal micro-batches, halved warm-up micro-batches and stages
with their own micro-batch sizes one mechanism. The executor also plays the two halves of a split
backward, which are not simulated.
"""

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from stagecut.planner.core.checks import require, require_count
from stagecut.planner.core.interleaving import Interleaving
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.sublot_sizes import sublot_lengths
from stagecut.planner.cost.plan_costs import SublotCut
from stagecut.planner.cost.sublot_costs import sublot_cut


class Op(StrEnum):
    """What an action does."""

    FORWARD = "F"
    BACKWARD = "B"
    INPUT_GRADIENT = "I"
    """First half of a split backward: the gradient that the stage before waits for."""
    WEIGHT_GRADIENT = "W"
    """Second half: the gradients of the weights, any time later (Qi et al., Zero Bubble, ICLR 2024)."""


class Action(NamedTuple):
    """Forward, backward or half a backward of the samples [lo, hi) on a stage."""

    op: Op
    stage: int
    lo: int
    hi: int


def stage_actions(stage: int, forwards: Sequence[int], backwards: Sequence[int], *, depth: int) -> list[Action]:
    """Actions of one stage that keeps `depth` samples in flight.

    Before each backward come the forwards that are still missing for it, and those that keep
    `depth` samples in flight after the backward before it. With equal sizes b and depth = k b:
    k forwards, then backward and forward alternating, then the remaining backwards. Forwards and
    backwards are given by their sizes in samples, in sample order; both sum to the number of samples.
    """
    waiting = _actions(Op.FORWARD, stage, forwards)
    waiting.reverse()
    actions: list[Action] = []
    forwarded = 0
    for backward in _actions(Op.BACKWARD, stage, backwards):
        wanted = max(backward.hi, backward.lo + depth)
        while waiting and forwarded < wanted:
            actions.append(waiting.pop())
            forwarded = actions[-1].hi
        actions.append(backward)
    return actions


def plan_actions(plan: Plan) -> list[list[Action]]:
    """Actions of every device group of each pipeline of a plan, in its stages' own micro-batch sizes.

    The last action is smaller where its size does not divide the samples of a pipeline.
    """
    if plan.schedule is Schedule.INTERLEAVED:
        return interleaved_actions(plan.num_groups, plan.chunks, plan.num_microbatches, plan.micro_batch)
    if plan.num_sliced > 0:
        depths = [stage.warmup_depth for stage in plan.stages]
        return pipeline_actions(depths, plan.num_microbatches, plan.micro_batch, plan.num_halved)
    return sublot_actions(sublot_cut(plan))


def sublot_actions(cut: SublotCut) -> list[list[Action]]:
    """Actions of every stage of a pipeline whose stages have sublot sizes of their own."""
    return [
        stage_actions(
            stage,
            sublot_lengths(cut.num_samples, cut.forward[stage]),
            sublot_lengths(cut.num_samples, cut.backward[stage]),
            depth=depth,
        )
        for stage, depth in enumerate(cut.in_flight)
    ]


def pipeline_actions(
    warmup_depth: Sequence[int], num_microbatches: int, micro_batch: int = 1, num_halved: Sequence[int] = ()
) -> list[list[Action]]:
    """Actions of every stage of a pipeline with equal micro-batches.

    A warm-up depth of more than `num_microbatches` means all of them (GPipe). Each stage forwards its first
    `num_halved` micro-batches in two halves, none by default; backwards stay whole.
    """
    require_count("schedule", "num_microbatches", num_microbatches)
    require_count("schedule", "micro_batch", micro_batch)
    require(not num_halved or micro_batch % 2 == 0, "schedule", "micro_batch", "even to be halved", micro_batch)
    wholes = [micro_batch] * num_microbatches
    return [
        stage_actions(s, [micro_batch // 2] * (2 * halved) + wholes[halved:], wholes, depth=int(k) * micro_batch)
        for s, (k, halved) in enumerate(zip(warmup_depth, num_halved or [0] * len(warmup_depth), strict=True))
    ]


def interleaved_actions(
    num_devices: int, chunks: int, num_microbatches: int, micro_batch: int = 1
) -> list[list[Action]]:
    """Actions of every device group under interleaved 1F1B, see :mod:`stagecut.planner.core.interleaving`.

    Stage s runs on device group s mod `num_devices`; `num_microbatches` is a multiple of `num_devices`.
    """
    require_count("schedule", "micro_batch", micro_batch)
    order = Interleaving(num_devices=num_devices, chunks=chunks, num_microbatches=num_microbatches)
    return [_interleave(order, device, micro_batch) for device in range(num_devices)]


def _interleave(order: Interleaving, device: int, micro_batch: int) -> list[Action]:
    """Warm-up forwards, forward and backward in turn, remaining backwards."""
    warmup = int(order.warmup[device])
    forwards, backwards = [], []
    for number in range(order.num_forwards):
        chunk, index = order.action(number)
        lo, hi = index * micro_batch, (index + 1) * micro_batch
        mirrored = order.chunks - 1 - chunk
        forwards.append(Action(Op.FORWARD, chunk * order.num_devices + device, lo, hi))
        backwards.append(Action(Op.BACKWARD, mirrored * order.num_devices + device, lo, hi))
    turns = itertools.zip_longest(forwards[warmup:], backwards)
    return forwards[:warmup] + [action for turn in turns for action in turn if action is not None]


def _actions(op: Op, stage: int, sizes: Sequence[int]) -> list[Action]:
    cuts = itertools.accumulate(sizes, initial=0)
    return [Action(op, stage, lo, hi) for lo, hi in itertools.pairwise(cuts)]
