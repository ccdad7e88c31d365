"""One order for all that the ranks of a pipeline do with each other, in which nobody can wait forever.

Under NCCL a send may last until it is received, operations of a communicator run one after another, and those of
several communicators may hold up each other: they share the launch queues and multiprocessors of the device. So ranks
have to agree on an order. Here it is that of a clock which runs while the lists are played once, with actions of
whole durations and messages of none: an action stands at the moment of its end, a message behind the action that it
comes from, at that moment. Devices that share a replica act together, for they meet in collectives meanwhile.

Every rank begins its own part of that order, in that order. It extends whatever has to come first: actions of a rank
end one after another, a message stands behind its action, and the action that takes it ends later than it begins.
Sums of gradients, the optimizer and all that follows come behind it, in an order of their own that ranks agree on.

Then nobody waits forever, even if every operation of a rank had to wait for all those before it. Take the first
thing in the common order that is unfinished: on each of its ranks all that was begun before it is finished, so that
nothing holds up the host or the device there; its ranks begin it, and what it needs came before it. So it ends.

An action stands at its end, and not at its start, so that receives begin before the action during which their messages
set out: transfers run beside computation.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Step(NamedTuple):
    """An action of one rank, or of the ranks that share a replica, who compute together."""

    duration: int
    """More than 0, in units of any length."""
    takes: Sequence[int]
    """Numbers of the messages that must have come."""
    gives: Sequence[int]
    """Numbers of those that leave when it is done."""


class Moments(NamedTuple):
    """When everything stands in the common order; messages of one moment by their numbers, behind actions."""

    ends: Sequence[Sequence[int]]
    """Of each step of each player."""
    leaving: Mapping[int, int]
    """Of each message, by its number."""


def moments_of(players: Sequence[Sequence[Step]]) -> Moments:
    """Play steps by the clock; messages take no time.

    Parameters
    ----------
    players
        The steps of each, in order.

    Raises
    ------
    ValueError
        If they wait for each other forever.
    """
    ends: list[list[int]] = [[] for _ in players]
    leaving: dict[int, int] = {}
    moved = True
    while moved:
        moved = False
        for steps, done in zip(players, ends, strict=True):
            while len(done) < len(steps) and all(number in leaving for number in steps[len(done)].takes):
                step = steps[len(done)]
                start = max([done[-1] if done else 0, *(leaving[number] for number in step.takes)])
                done.append(start + step.duration)
                leaving.update(dict.fromkeys(step.gives, done[-1]))
                moved = True
    if any(len(done) < len(steps) for steps, done in zip(players, ends, strict=True)):
        raise ValueError("actions wait for each other forever")
    return Moments(ends, leaving)
