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

import numpy as np

from stagecut.planner.core.interleaving import Interleaving
from stagecut.planner.core.messages.checks import require, require_count
from stagecut.planner.core.numerics.arrays import Ints
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


class StageSizes(NamedTuple):
    """How a stage cuts its samples."""

    forwards: Sequence[int]
    """Samples of each forward, in sample order."""
    backwards: Sequence[int]
    """Samples of each backward; both sum to the number of samples."""
    depth: int
    """Samples to keep in flight."""


def stage_table(stage: int, sizes: StageSizes) -> Ints:
    """Actions of one stage in order as columns: whether it is a backward, stage, lo, hi; shape (4, actions).

    Before each backward come the forwards that are still missing for it, and those that keep
    `depth` samples in flight after the backward before it. With equal sizes b and depth = k b:
    k forwards, then backward and forward alternating, then the remaining backwards.
    """
    ends = [np.cumsum(part) for part in (sizes.forwards, sizes.backwards)]
    (first, second), (hi, done) = (end - part for end, part in zip(ends, sizes[:2], strict=True)), ends
    # The first backward that wants more samples forwarded than are before this forward.
    follower = np.searchsorted(np.maximum(done, second + sizes.depth), first, side="right")
    backward = np.repeat((0, 1), (len(hi), len(done)))
    order = np.lexsort((backward, np.append(follower, np.arange(len(done)))))
    columns = (backward, np.full_like(backward, stage), np.append(first, second), np.append(hi, done))
    return np.stack(columns)[:, order]


def stage_actions(stage: int, forwards: Sequence[int], backwards: Sequence[int], *, depth: int) -> list[Action]:
    """Actions of one stage that keeps `depth` samples in flight, in the order of :func:`stage_table`."""
    table = stage_table(stage, StageSizes(forwards, backwards, depth))
    return [Action((Op.FORWARD, Op.BACKWARD)[backward], *rest) for backward, *rest in table.T.tolist()]


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
    return [stage_actions(stage, *sizes[:2], depth=sizes.depth) for stage, sizes in enumerate(sublot_sizes(cut))]


def sublot_sizes(cut: SublotCut) -> list[StageSizes]:
    """Sizes of every stage of such a pipeline."""
    return [
        StageSizes(
            sublot_lengths(cut.num_samples, cut.forward[stage]),
            sublot_lengths(cut.num_samples, cut.backward[stage]),
            depth,
        )
        for stage, depth in enumerate(cut.in_flight)
    ]


def pipeline_actions(
    warmup_depth: Sequence[int], num_microbatches: int, micro_batch: int = 1, num_halved: Sequence[int] = ()
) -> list[list[Action]]:
    """Actions of every stage of a pipeline with equal micro-batches, see :func:`pipeline_sizes`."""
    stages = pipeline_sizes(warmup_depth, num_microbatches, micro_batch, num_halved)
    return [stage_actions(stage, *sizes[:2], depth=sizes.depth) for stage, sizes in enumerate(stages)]


def pipeline_sizes(
    warmup_depth: Sequence[int], num_microbatches: int, micro_batch: int = 1, num_halved: Sequence[int] = ()
) -> list[StageSizes]:
    """Sizes of every stage of a pipeline with equal micro-batches.

    A warm-up depth of more than `num_microbatches` means all of them (GPipe). Each stage forwards its first
    `num_halved` micro-batches in two halves, none by default; backwards stay whole.
    """
    require_count("schedule", "num_microbatches", num_microbatches)
    require_count("schedule", "micro_batch", micro_batch)
    require(not num_halved or micro_batch % 2 == 0, "schedule", "micro_batch", "even to be halved", micro_batch)
    wholes = [micro_batch] * num_microbatches
    return [
        StageSizes([micro_batch // 2] * (2 * halved) + wholes[halved:], wholes, int(k) * micro_batch)
        for k, halved in zip(warmup_depth, num_halved or [0] * len(warmup_depth), strict=True)
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
