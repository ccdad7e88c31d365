"""How a stage exchanges one part of its weights: directly with a shard, or by all-reduce."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any, Protocol

import torch
from torch import Tensor

from stagecut.executor.waves.carriers.shard import OuterWeights, Pulled, Shard
from stagecut.executor.waves.setting.layout import Member
from stagecut.executor.waves.setting.schemes import Merge, Scheme

Ended = Future[Any] | None
"""Done when a transfer has ended; None if it takes no time, or nobody knows."""


class Channel(Protocol):
    """One part of a stage's weights on its way to the other workers."""

    def push(self, wave: int, vector: Tensor) -> Ended:
        """Begin to send what this stage has for a wave; the vector is not changed afterwards."""
        ...

    def ask(self, *, have: int, least: int) -> Ended:
        """Begin to pull what weights of one clock lack, so that they have another one at least."""
        ...

    def answer(self) -> Pulled:
        """Wait for what was asked for."""
        ...

    def rest(self) -> None:
        """Nothing more is pushed or asked for until the stage trains again."""
        return

    def missing(self) -> Tensor | None:
        """What the others have pushed and nobody has asked for, once all have; None if a server holds it."""
        return None


class DirectChannel(Channel):
    """To a shard in this process."""

    def __init__(self, shard: Shard, member: Member) -> None:
        self._shard, self._member = shard, member
        self.asked: Future[Pulled] = Future()
        """What was asked for last."""

    def push(self, wave: int, vector: Tensor) -> None:
        """See :class:`Channel`."""
        self._shard.push(self._member, wave, vector)

    def ask(self, *, have: int, least: int) -> Ended:
        """See :class:`Channel`."""
        self.asked = self._shard.ask(self._member, have=have, least=least)
        return self.asked

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        return self.asked.result()


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over all workers."""

    wait: Callable[[], Tensor]
    ended: Ended = None


class Reducer(Protocol):
    """Sums over one stage of every worker."""

    def begin(self, wave: int, vector: Tensor) -> Total:
        """Begin the sum of a wave, for which the vector may be used."""
        ...


class AllReduceChannel(Channel):
    """A delayed all-reduce: it begins at the end of a wave, and is waited for at a later gate.

    Parameters
    ----------
    weights
        Initial ones, as a vector; every worker makes the outer steps for itself.
    """

    def __init__(self, reducer: Reducer, weights: Tensor, scheme: Scheme) -> None:
        self._reducer, self._merge = reducer, scheme.merge
        self._outer = OuterWeights(weights, scheme.outer) if scheme.outer else None
        self._empty = torch.zeros_like(weights)
        self._own: dict[int, Tensor] = {}
        self._totals: dict[int, Total] = {}
        self._asked = range(0)

    @property
    def outer(self) -> OuterWeights | None:
        """Global weights and outer optimizer, with `Merge.REPLACE`."""
        return self._outer

    def push(self, wave: int, vector: Tensor) -> Ended:
        """See :class:`Channel`."""
        if self._merge is Merge.ADD:
            self._own[wave] = vector.clone()
        self._totals[wave] = self._reducer.begin(wave, vector)
        return self._totals[wave].ended

    def ask(self, *, have: int, least: int) -> None:
        """See :class:`Channel`: the gate gets exactly what it needs."""
        self._asked = range(have, least)

    def answer(self) -> Pulled:
        """See :class:`Channel`."""
        totals = [self._totals.pop(wave).wait() for wave in self._asked]
        return Pulled(clock=self._asked.stop, content=self._content(totals))

    def unasked(self) -> tuple[dict[int, Tensor], dict[int, Tensor]]:
        """The stage's own changes, with `ADD`, and the sums of the waves that nobody has asked for yet."""
        return dict(self._own), {wave: total.wait() for wave, total in self._totals.items()}

    def restore(self, own: Mapping[int, Tensor], totals: Mapping[int, Tensor]) -> None:
        """Go on with what `unasked` gave."""
        self._own = dict(own)
        self._totals = {wave: Total(partial(_known, total)) for wave, total in totals.items()}

    def missing(self) -> Tensor | None:
        """See :class:`Channel`; with `ADD` only."""
        if self._merge is not Merge.ADD:
            return None
        changes = (total.wait() - self._own[wave] for wave, total in self._totals.items())
        return reduce(add, changes, self._empty)

    def _content(self, totals: Sequence[Tensor]) -> Tensor:
        if self._merge is Merge.STEP:
            return torch.cat(list(totals))
        if self._outer is not None:
            for total in totals:
                self._outer.step(total)
            return self._outer.weights.detach().clone()
        changes = (total - self._own.pop(wave) for wave, total in zip(self._asked, totals, strict=True))
        return reduce(add, changes, self._empty)


def _known(total: Tensor) -> Tensor:
    return total


class SharedSums:
    """The sums of threads of one process: one for each range of layers, over one stage of every worker."""

    def __init__(self, num_workers: int) -> None:
        self._num_workers = num_workers
        self._brought: dict[int, dict[int, Tensor]] = {}
        self._totals: dict[int, Future[Tensor]] = {}
        self._lock = threading.Lock()
        self._fault: BaseException | None = None

    def reducer(self, worker: int) -> Reducer:
        """One worker's end."""
        return _SharedReducer(self, worker)

    def bring(self, worker: int, wave: int, vector: Tensor) -> "Future[Tensor]":
        """Add what a worker has for a wave."""
        with self._lock:
            total = self._totals.setdefault(wave, Future())
            brought = self._brought.setdefault(wave, {})
            brought[worker] = vector
            if self._fault is not None and not total.done():
                total.set_exception(self._fault)
            elif len(brought) == self._num_workers:
                total.set_result(reduce(add, (part for _, part in sorted(brought.items()))))
                del self._brought[wave], self._totals[wave]
            return total

    def fail(self, fault: BaseException) -> None:
        """Let everyone fail who waits, or comes later."""
        with self._lock:
            self._fault = fault
            for total in self._totals.values():
                if not total.done():
                    total.set_exception(fault)


class _SharedReducer(Reducer):
    def __init__(self, sums: SharedSums, worker: int) -> None:
        self._sums, self._worker = sums, worker

    def begin(self, wave: int, vector: Tensor) -> Total:
        """See :class:`Reducer`."""
        total = self._sums.bring(self._worker, wave, vector)
        return Total(total.result, total)
