"""What one parameter server holds: the weights of its layers, and the waves that are not complete or not fetched."""

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import reduce
from operator import add

import torch
from torch import Tensor, nn

from stagecut.executor.play.optimizers import OptimizerFactory
from stagecut.executor.waves.setting.layout import Member
from stagecut.executor.waves.setting.schemes import Merge, Scheme


@dataclass(frozen=True, slots=True, kw_only=True)
class Pulled:
    """What has come of the complete waves that a stage did not have."""

    clock: int
    """Number of first waves of all workers that the stage's weights hold with it."""
    content: Tensor
    """`ADD`: the sum of the other workers' updates; `STEP`: the summed gradients of wave after wave; `REPLACE`: the
    global weights."""


@dataclass(slots=True)
class _Request:
    have: int
    least: int
    answer: "Future[Pulled]"


class OuterWeights:
    """Global weights, and the outer optimizer that changes them."""

    def __init__(self, weights: Tensor, factory: OptimizerFactory) -> None:
        self.weights = nn.Parameter(weights.clone())
        self.optimizer = factory([self.weights])

    def step(self, mean_change: Tensor) -> None:
        """Take minus the workers' mean change for the gradient."""
        self.weights.grad = -mean_change
        self.optimizer.step()


class Shard:
    """The state of a parameter server; threads push to it and ask it, and nobody waits inside.

    Its clock is the number of first waves that all its members have pushed; what a member pulls holds exactly those.
    Sums go over workers in order, so that nothing depends on who came first.

    Parameters
    ----------
    weights
        Initial ones, as a vector.
    members
        The part of the vector that each stage of each worker exchanges.
    shares
        Of each worker in the samples of a wave: sums of gradients and means count those who have taken part.
    """

    def __init__(
        self, weights: Tensor, members: Mapping[Member, slice], scheme: Scheme, *, shares: Mapping[int, float]
    ) -> None:
        self._merge, self._members, self._shares = scheme.merge, members, shares
        self.weights = weights.clone()
        """The initial ones with all complete waves; with `STEP`, which leaves steps to the workers, the initial ones.
        """
        self.outer = OuterWeights(weights, scheme.outer) if scheme.outer else None
        self.clock = 0
        self.observer: Callable[[int], object] = lambda _: None
        """Called with the clock whenever it rises."""
        self.arrived = dict.fromkeys(members, 0)
        """Waves that each member has pushed."""
        self.fetched = dict.fromkeys(members, 0)
        """The clock of what each member has pulled last."""
        self.waves: dict[int, dict[int, Tensor]] = {}
        """What each worker has pushed of the waves that some member still needs, or that are not complete."""
        self._requests: dict[Member, _Request] = {}
        self._fault: BaseException | None = None
        self._lock = threading.Lock()

    def push(self, member: Member, wave: int, vector: Tensor) -> None:
        """Take what a member has for a wave."""
        with self._lock:
            if member not in self.arrived:  # dropped
                return
            assert wave == self.arrived[member], f"{member} pushed wave {wave} after {self.arrived[member]} waves"
            pushed = self.waves.setdefault(wave, {})
            pushed.setdefault(member[0], torch.zeros_like(self.weights))[self._members[member]] = vector
            self.arrived[member] += 1
            self._advance()

    def ask(self, member: Member, *, have: int, least: int) -> "Future[Pulled]":
        """What a member lacks whose weights have one clock, as soon as it can have another one at least."""
        with self._lock:
            answer: Future[Pulled] = Future()
            fault = self._fault if member in self.arrived else RuntimeError(f"worker {member[0]} was dropped")
            if fault is not None:
                answer.set_exception(fault)
                return answer
            self._requests[member] = _Request(have, least, answer)
            self._reply()
            return answer

    def drop(self, worker: int) -> int:
        """Go on without a worker: what it has pushed of waves that are not complete is gone; those that count."""
        with self._lock:
            counted = self.clock
            for member in [member for member in self.arrived if member[0] == worker]:
                del self.arrived[member], self.fetched[member]
                if member in self._requests:
                    self._requests.pop(member).answer.set_exception(RuntimeError(f"worker {worker} was dropped"))
            for wave, pushed in self.waves.items():
                if wave >= self.clock:
                    pushed.pop(worker, None)
            if self.arrived:
                self._advance()
            return counted

    def late(self) -> tuple[Member, ...]:
        """The members that requests wait for."""
        with self._lock:
            least = max((request.least for request in self._requests.values()), default=0)
            return tuple(member for member, arrived in self.arrived.items() if arrived < least)

    def fail(self, fault: BaseException) -> None:
        """Let everyone fail who waits, or comes later."""
        with self._lock:
            self._fault = fault
            for request in self._requests.values():
                request.answer.set_exception(fault)
            self._requests.clear()

    def _advance(self) -> None:
        while self.clock < min(self.arrived.values()):
            self._complete(self.clock)
            self.clock += 1
            self.observer(self.clock)
        self._reply()

    def _complete(self, wave: int) -> None:
        if self._merge is Merge.ADD:
            self.weights += self._total(wave)
        if self.outer is not None:
            self.outer.step(self._total(wave))
            self.weights.copy_(self.outer.weights.detach())

    def _total(self, wave: int) -> Tensor:
        """The sum over all workers; with weights that add up to one, also of those who have taken part."""
        pushed = self.waves[wave]
        total = reduce(add, (vector for _, vector in sorted(pushed.items())))
        if self._merge is Merge.ADD or len(pushed) == len(self._shares):
            return total
        return total / sum(self._shares[worker] for worker in pushed)

    def _reply(self) -> None:
        ready = [member for member, request in self._requests.items() if request.least <= self.clock]
        for member in ready:
            request = self._requests.pop(member)
            content = self._content(member, request.have)
            self.fetched[member] = self.clock
            request.answer.set_result(Pulled(clock=self.clock, content=content))
        least = self.clock if self.outer is not None else min(self.fetched.values())
        for wave in [wave for wave in self.waves if wave < least]:
            del self.waves[wave]

    def _content(self, member: Member, have: int) -> Tensor:
        own, lacks = self._members[member], range(have, self.clock)
        if self._merge is Merge.REPLACE:
            return self.weights[own].clone()
        if self._merge is Merge.STEP:
            return torch.cat([self._total(wave)[own] for wave in lacks])
        others = (
            vector[own] for wave in lacks for worker, vector in sorted(self.waves[wave].items()) if worker != member[0]
        )
        return reduce(add, others, torch.zeros_like(self.weights[own]))
