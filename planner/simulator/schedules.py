"""Action lists: what each stage runs, in which order.

An action is the forward or backward of a range of samples [lo, hi) of the pipeline's share of the
global batch on one stage. Ranges make equal micro-batches, halved warm-up micro-batches and stages
with sizes of their own one mechanism.
"""

import itertools
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from planner.core.checks import require_count


class Op(StrEnum):
    """Direction of an action."""

    FORWARD = "F"
    BACKWARD = "B"


class Action(NamedTuple):
    """Forward or backward of the samples [lo, hi) on a stage."""

    op: Op
    stage: int
    lo: int
    hi: int


def stage_actions(stage: int, forwards: Sequence[int], backwards: Sequence[int], *, depth: int) -> list[Action]:
    """Actions of one stage that keeps `depth` samples in flight.

    Before each backward come the forwards that are still missing for it, and those that keep
    `depth` samples in flight after the backward before it. With equal sizes b and depth = k b:
    k forwards, then backward and forward alternating, then the remaining backwards.

    Parameters
    ----------
    forwards, backwards
        Sizes in samples, in sample order; both sum to the number of samples.
    depth
        Samples forwarded before the first backward.
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


def pipeline_actions(warmup_depth: Sequence[int], num_microbatches: int, micro_batch: int = 1) -> list[list[Action]]:
    """Actions of every stage of a pipeline with equal micro-batches.

    Parameters
    ----------
    warmup_depth
        k of each stage, first stage first; more than `num_microbatches` means all of them (GPipe).
    """
    require_count("schedule", "num_microbatches", num_microbatches)
    require_count("schedule", "micro_batch", micro_batch)
    sizes = [micro_batch] * num_microbatches
    return [stage_actions(s, sizes, sizes, depth=int(k) * micro_batch) for s, k in enumerate(warmup_depth)]


def _actions(op: Op, stage: int, sizes: Sequence[int]) -> list[Action]:
    cuts = itertools.accumulate(sizes, initial=0)
    return [Action(op, stage, lo, hi) for lo, hi in itertools.pairwise(cuts)]
