"""Sums over stages of a worker, which all of them get."""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add

import torch
from torch import Tensor

from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport
from stagecut.executor.waves.messages.mail import WINDOW
from stagecut.executor.waves.setting.execution import WaveExecution
from stagecut.executor.waves.setting.layout import Member
from stagecut.planner.simulator.action_lists import Op

_FIRST_NUMBER = 4 * WINDOW
"""Messages of other kinds have lower ones."""


class StageSums:
    """Every stage sends the others its part; sums go over stages in order, so that all have the same numbers.

    Parameters
    ----------
    num_sums
        Different sums for each minibatch or wave.
    """

    def __init__(self, execution: WaveExecution, member: Member, *, transport: Transport, num_sums: int) -> None:
        worker, self._stage = execution.plan.workers[member[0]], member[1]
        self._ranks = [execution.layout.rank_of(member[0], stage) for stage in range(worker.num_stages)]
        self._transport = transport
        self._own: dict[tuple[int, int], Tensor] = {}
        self._sent: deque[tuple[list[Pending], Tensor]] = deque()
        self._depth = worker.in_flight * worker.num_stages * num_sums

    def send(self, index: int, number: int, own: Tensor, *, stages: Sequence[int]) -> None:
        """Give some stages, this one among them, its part of a sum of a minibatch or wave."""
        self._own[index, number] = own
        for stage in stages:
            if stage != self._stage:
                message = self._message(index, number, (self._stage, stage))
                self._sent.append((self._transport.send(message, [own]), own))
        self._wait_for_all_but(self._depth)

    def total(self, index: int, number: int, *, stages: Sequence[int]) -> Tensor:
        """Wait for the parts of all others."""
        own = self._own.pop((index, number))
        return reduce(add, (self._part(index, number, stage, own) for stage in stages))

    def settle(self) -> None:
        """Wait until all has left."""
        self._wait_for_all_but(0)

    def _wait_for_all_but(self, count: int) -> None:
        while len(self._sent) > count:
            _wait(self._sent.popleft()[0])

    def _part(self, index: int, number: int, stage: int, own: Tensor) -> Tensor:
        if stage == self._stage:
            return own
        message, place = self._message(index, number, (stage, self._stage)), torch.empty_like(own)
        self._transport.expect(message, [place])
        _wait(self._transport.receive(message))
        return place

    def _message(self, index: int, number: int, stages: tuple[int, int]) -> Message:
        source, target = (self._ranks[stage] for stage in stages)
        own = _FIRST_NUMBER + index * WINDOW + number % WINDOW
        return Message(Op.BACKWARD, stages[0], 0, 0, source, target, (), own)


def _wait(pendings: Iterable[Pending]) -> None:
    for pending in pendings:
        pending.wait()
