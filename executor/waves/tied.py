"""Tied weights: the gradients of all stages of a worker that hold a copy are summed.

Every layer keeps its own copy. Copies start equal and get the same gradients, so their optimizers step them alike;
between workers each is exchanged with its own layer.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Tensor

from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport
from stagecut.executor.waves.execution import WaveExecution
from stagecut.executor.waves.layout import Member
from stagecut.executor.waves.mail import WINDOW
from stagecut.planner.simulator.action_lists import Op

_FIRST_NUMBER = 4 * WINDOW
"""Messages of other kinds have lower ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tied:
    """Copies of one weight in a worker."""

    stages: tuple[int, ...]
    """Those that hold one, ascending."""
    names: tuple[str, ...]
    """The copies of this stage, by global name."""


def tied_of(execution: WaveExecution, member: Member) -> tuple[Tied, ...]:
    """The tied weights of a stage, in the chain's order."""
    chain, worker = execution.chain, execution.plan.workers[member[0]]
    places: dict[tuple[int, str], list[tuple[int, str]]] = {}
    for tie in chain.ties:
        places.setdefault(tie.owner, [tie.owner]).append(tie.copy)
    found = []
    for copies in places.values():
        holding = {
            place: next(i for i, stage in enumerate(worker.stages) if stage.start <= place[0] < stage.stop)
            for place in copies
        }
        names = [f"{chain.layers[layer].name}.{own}" for (layer, own), stage in holding.items() if stage == member[1]]
        found.append(Tied(stages=tuple(sorted(set(holding.values()))), names=tuple(names)))
    return tuple(found)


class TiedGradients:
    """Sums the gradients of one stage's tied weights with those of the other stages."""

    def __init__(self, execution: WaveExecution, member: Member, *, transport: Transport, device: torch.device) -> None:
        worker, self._stage = execution.plan.workers[member[0]], member[1]
        self._groups = [
            (number, group) for number, group in enumerate(tied_of(execution, member)) if self._stage in group.stages
        ]
        self._ranks = [execution.layout.rank_of(member[0], stage) for stage in range(worker.num_stages)]
        self._transport, self._device = transport, device
        self._own: dict[tuple[int, int], Tensor] = {}
        self._sent: deque[tuple[list[Pending], Tensor]] = deque()
        self._depth = worker.in_flight * worker.num_stages * len(self._groups)
        first = min((group.stages[0] for _, group in self._groups), default=self._stage)
        self.lag = 0 if first == self._stage else worker.stages[first].warmup_depth
        """Minibatches after which the gradients of all stages have certainly been sent: 0, once this stage's are."""

    def send(self, number: int, gradients: Mapping[str, Tensor | None], like: Mapping[str, Tensor]) -> None:
        """Give the other stages this one's sums for a minibatch or wave."""
        for index, group in self._groups:
            zeros = torch.zeros_like(like[group.names[0]])
            own = reduce(add, (part for name in group.names if (part := gradients[name]) is not None), zeros)
            self._own[index, number] = own
            for stage in group.stages:
                if stage != self._stage:
                    message = self._message(index, number, (self._stage, stage))
                    self._sent.append((self._transport.send(message, [own]), own))

        self._wait_for_all_but(self._depth)

    def totals(self, number: int) -> dict[str, Tensor]:
        """The sums over all stages, by the names of this one's copies; the same numbers on all of them."""
        found: dict[str, Tensor] = {}
        for index, group in self._groups:
            own = self._own.pop((index, number))
            parts = (self._part(index, number, stage, own) for stage in group.stages)
            found |= dict.fromkeys(group.names, reduce(add, parts))
        return found

    def settle(self) -> None:
        """Wait until all has left."""
        self._wait_for_all_but(0)

    def __bool__(self) -> bool:
        """Whether the stage has any."""
        return bool(self._groups)

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
