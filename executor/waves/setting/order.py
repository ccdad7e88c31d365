"""The order of forwards and backwards on a stage, fixed beforehand, the same in the simulator and at run time."""

from collections.abc import Iterator
from typing import NamedTuple

from stagecut.planner.simulator.action_lists import Op


class WaveAction(NamedTuple):
    """The forward or backward of a minibatch."""

    op: Op
    minibatch: int


def continuous(depth: int, *, first: int, last: int) -> Iterator[WaveAction]:
    """Minibatches first .. last on a stage: as many forwards as its depth, then a backward and a forward in turn.

    With the depths of `wsp` plans a minibatch never starts on a stage before the one N_m earlier is complete there.
    """
    for minibatch in range(first, min(first + depth, last + 1)):
        yield WaveAction(Op.FORWARD, minibatch)
    for minibatch in range(first, last + 1):
        yield WaveAction(Op.BACKWARD, minibatch)
        if minibatch + depth <= last:
            yield WaveAction(Op.FORWARD, minibatch + depth)


def in_waves(depth: int, *, wave: int, first: int, last: int) -> Iterator[WaveAction]:
    """The same wave by wave, with the pipeline running empty after each: 1F1B."""
    for start in range(first, last + 1, wave):
        yield from continuous(min(depth, wave), first=start, last=start + wave - 1)
