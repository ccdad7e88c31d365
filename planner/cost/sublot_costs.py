"""Seconds of every sublot of a plan whose processes have sizes of their own."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from stagecut.planner.core.plan import Plan
from stagecut.planner.core.sublot_sizes import sublot_cuts, sublot_lengths
from stagecut.planner.cost.plan_costs import OwnTimes, SublotCut, TaskKind
from stagecut.planner.cost.stage_costs import StageCosts


def sublot_cut(plan: Plan) -> SublotCut:
    """How the stages of a plan, and the messages between them, cut the samples of a pipeline."""
    stages = plan.stages
    return SublotCut(
        num_samples=plan.num_samples,
        forward=tuple(stage.forward_micro_batch for stage in stages),
        backward=tuple(stage.backward_micro_batch for stage in stages),
        forward_messages=tuple(stage.forward_message for stage in stages[:-1]),
        backward_messages=tuple(stage.backward_message for stage in stages[1:]),
        in_flight=tuple(min(stage.warmup_depth * stage.forward_micro_batch, plan.num_samples) for stage in stages),
    )


def sublot_seconds(
    cut: SublotCut, stage_costs: Callable[[int, int], StageCosts], transfer_s: Callable[[int, int], float]
) -> OwnTimes:
    """Seconds of every action and message.

    A backward of several sublots of its forward runs through what each of these has kept, one after another, so it
    takes as long as their backwards together.

    Parameters
    ----------
    stage_costs
        Costs of a stage for a number of samples, each of shape (1,).
    transfer_s
        Seconds of a message over a boundary, for a number of samples.
    """
    seconds = dict[tuple[TaskKind, int, int], float]()
    for stage, (forward, backward) in enumerate(zip(cut.forward, cut.backward, strict=True)):
        for length in sublot_lengths(cut.num_samples, forward):
            seconds[TaskKind.FORWARD, stage, length] = float(stage_costs(stage, length).forward_s[0])
        for length in sublot_lengths(cut.num_samples, backward):
            parts = (float(stage_costs(stage, part).backward_s[0]) for part in sublot_lengths(length, forward))
            seconds[TaskKind.BACKWARD, stage, length] = sum(parts)
    for boundary, sizes in enumerate(zip(cut.forward_messages, cut.backward_messages, strict=True)):
        ends = slice(boundary, boundary + 2)
        for length in message_lengths(cut.num_samples, sizes[0], cut.forward[ends]):
            seconds[TaskKind.SEND_FORWARD, boundary, length] = transfer_s(boundary, length)
        for length in message_lengths(cut.num_samples, sizes[1], cut.backward[ends]):
            seconds[TaskKind.SEND_BACKWARD, boundary + 1, length] = transfer_s(boundary, length)
    return seconds


def whole_seconds(seconds: OwnTimes, num_stages: int) -> dict[str, Any]:
    """Seconds of a whole forward, backward and message to the next stage, by column of the costs."""
    columns = {"forward_s": TaskKind.FORWARD, "backward_s": TaskKind.BACKWARD, "transfer_s": TaskKind.SEND_FORWARD}
    whole = {key[:2]: seconds[key] for key in sorted(seconds)}  # the longest comes last
    return {
        name: np.array([whole[kind, stage] for stage in range(num_stages) if (kind, stage) in whole])
        for name, kind in columns.items()
    }


def message_lengths(num_samples: int, size: int | None, ends: Sequence[int]) -> tuple[int, ...]:
    """Samples of each message of one size, or of the parts that the sublots at both ends have in common."""
    if size is not None:
        return sublot_lengths(num_samples, size)
    cuts = np.unique(np.concatenate([sublot_cuts(num_samples, end) for end in ends]))
    return tuple(second - first for first, second in pairwise(cuts.tolist()))
