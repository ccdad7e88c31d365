"""Room left at every moment, with fast least values and changes over runs of moments."""

from typing import NamedTuple

import numpy as np

from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.core.numerics.compiled import compiled

BLOCK = 128
"""Moments of a block, whose least value and common change are kept."""
ENOUGH = 2**62


class Slack(NamedTuple):
    """The room left at moment t is value[t] + common[t // BLOCK]; least[b] is the least of block b."""

    value: Ints
    common: Ints
    least: Ints


def slack_of(room: Ints) -> Slack:
    """Nothing used yet."""
    num_blocks = -(-len(room) // BLOCK)
    padded = np.full(num_blocks * BLOCK, ENOUGH)
    padded[: len(room)] = room
    return Slack(room.copy(), np.zeros(num_blocks, dtype=np.int64), padded.reshape(num_blocks, BLOCK).min(axis=1))


@compiled
def least_slack(slack: Slack, begin: int, end: int) -> int:
    """The least room left from moment begin up to end; a lot if there are none."""
    least, at = ENOUGH, begin
    while at < end:
        block = at // BLOCK
        stop = min((block + 1) * BLOCK, end)
        if stop - at == BLOCK or (stop == len(slack.value) and at == block * BLOCK):
            least = min(least, slack.least[block])
        else:
            inside = ENOUGH
            for t in range(at, stop):
                inside = min(inside, slack.value[t])
            least = min(least, inside + slack.common[block])
        at = stop
    return least


@compiled
def use(slack: Slack, begin: int, end: int, amount: int) -> None:
    """Take an amount of the room from moment begin up to end; a negative amount gives it back."""
    at = begin
    while at < end:
        block = at // BLOCK
        stop = min((block + 1) * BLOCK, end)
        if stop - at == BLOCK:
            slack.common[block] -= amount
            slack.least[block] -= amount
        else:
            for t in range(at, stop):
                slack.value[t] -= amount
            least = ENOUGH
            for t in range(block * BLOCK, min((block + 1) * BLOCK, len(slack.value))):
                least = min(least, slack.value[t])
            slack.least[block] = least + slack.common[block]
        at = stop
