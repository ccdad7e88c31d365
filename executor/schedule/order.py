"""A common order for everything that the ranks of a pipeline do with each other, which rules out deadlock.

Under NCCL a send may last until it is received, operations of a communicator run one after another, and operations of
several communicators may block each other, because they share the launch queues and multiprocessors of the device. So
the ranks have to agree on an order. It comes from playing the lists once with integer durations of actions and instant
messages: an action is placed at its end, and a message right after the action that completed it. The devices of a
tensor-parallel group act together, because they meet in collectives.

Every rank begins its part of that order, in that order. The order extends all dependencies: the actions of a rank end
one after another, a message follows the last of the actions whose samples it holds, and the first action that takes
some of them ends after it. Gradient sums, the optimizer and everything after come later, in an order of their own that
is also common to all ranks.

There is no deadlock, even if every operation of a rank had to wait for all the operations before it. Take the first
unfinished item of the common order: on each of its ranks everything begun before it is finished, so nothing blocks the
host or the device there; its ranks begin it, and what it needs came before it. So it finishes.

Actions are placed at their end rather than their start so that a receive begins before the action during which its
message is sent: transfers overlap with computation.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class RankStep(NamedTuple):
    """An action of one rank or tensor-parallel group."""

    duration: int
    """Positive, in arbitrary units."""
    needs: Sequence[int]
    """Numbers of the messages it needs."""
    sends: Sequence[int]
    """Numbers of the messages that leave when it is done."""


class Moments(NamedTuple):
    """Positions in the common order; at equal times, actions precede messages, which go by their numbers."""

    ends: Sequence[Sequence[int]]
    """End of each step of each group."""
    leaving: Mapping[int, int]
    """When each message leaves, by its number."""


def moments_of(groups: Sequence[Sequence[RankStep]]) -> Moments:
    """Play steps in time; messages are instant.

    Parameters
    ----------
    groups
        The steps of each rank or tensor-parallel group, in order.

    Raises
    ------
    ValueError
        If they deadlock.
    """
    ends: list[list[int]] = [[] for _ in groups]
    leaving: dict[int, int] = {}
    moved = True
    # Each pass advances every group as far as the messages sent so far allow. What a later pass adds never changes an
    # end found before, so the result does not depend on the order of the groups.
    while moved:
        moved = False
        for steps, done in zip(groups, ends, strict=True):
            while len(done) < len(steps) and all(number in leaving for number in steps[len(done)].needs):
                step = steps[len(done)]
                start = max([done[-1] if done else 0, *(leaving[number] for number in step.needs)])
                done.append(start + step.duration)
                leaving.update(dict.fromkeys(step.sends, done[-1]))
                moved = True
    if any(len(done) < len(steps) for steps, done in zip(groups, ends, strict=True)):
        raise ValueError("actions wait for each other forever")
    return Moments(ends, leaving)
