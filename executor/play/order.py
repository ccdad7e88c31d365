"""One order for all that the ranks of a pipeline do with each other, in which nobody can wait forever.

Under NCCL a send is done when it has been received, operations of a communicator run one after another, and
kernels of unlike communicators may be held up by each other: they share the device's launch queues and its
multiprocessors. So ranks must agree on an order. Here it is that of a clock which runs while the lists are played
once with actions of round durations: an action stands at the moment of its end, a message at the moment at which the
action that it comes from ends, right behind it. Devices that share a replica end their actions together.

Every rank begins its own part of that order, in that order. It extends whatever must come first: actions of a rank
end one after another, a message comes behind its action, and the action that takes it ends later than it begins.

Nobody waits forever then, however much of its own order a rank has to keep to (each operation behind all earlier
ones, at worst). Take the first thing of the common order that is unfinished. All that its ranks have begun before it
is finished: nothing holds it up there, nothing keeps them from beginning it, and what it needs came before it. So it
goes on to its end.

Why the end of an action and not its start: a receive stands before the action during which its message sets out, so
that transfers run beside computation.
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
        If players wait for each other forever.
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
