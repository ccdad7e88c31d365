"""Transport between threads of one process: on a single GPU, or for a plan of one device."""

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar, cast

import torch
from torch import Tensor

from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, StreamTensors, Transport
from stagecut.planner.core.messages.errors import StagecutError

T = TypeVar("T")

MessageKey = tuple[int, int, int]
"""Source, target and number of a message."""


class TeamBrokenError(StagecutError):
    """Another rank of this process has failed."""


class Hub:
    """Mailbox and meeting point of the threads of a process."""

    def __init__(self, world_size: int) -> None:
        self.everyone = tuple(range(world_size))
        self._lock = threading.Lock()
        self._changed = [threading.Condition(self._lock) for _ in self.everyone]
        """One per rank: what it waits for may have arrived."""
        self._mail: dict[MessageKey, StreamTensors] = {}
        self._collectives: dict[tuple[tuple[int, ...], int], dict[int, object]] = defaultdict(dict)
        self._counts: dict[tuple[int, tuple[int, ...]], itertools.count[int]] = defaultdict(itertools.count)
        """Sequence numbers of the collectives of some ranks, as counted by one rank."""
        self._broken = False

    def transport(self, rank: int) -> "ThreadTransport":
        """One rank's end."""
        return ThreadTransport(self, rank)

    def break_up(self) -> None:
        """Make everyone who waits fail."""
        with self._lock:
            self._broken = True
            self._wake(self.everyone)

    def mend(self) -> None:
        """Start afresh, once all ranks have stopped."""
        with self._lock:
            self._mail.clear()
            self._collectives.clear()
            self._counts.clear()
            self._broken = False

    def put(self, key: MessageKey, tensors: StreamTensors) -> None:
        """Deliver a message."""
        with self._lock:
            self._mail[key] = tensors
            self._wake((key[1],))

    def take(self, key: MessageKey) -> StreamTensors:
        """Wait for a message."""
        with self._lock:
            self._wait(key[1], lambda: key in self._mail)
            return self._mail.pop(key)

    def meet(self, rank: int, ranks: tuple[int, ...], value: T) -> list[T]:
        """All-gather among some ranks: the values of all of them, in the order of `ranks`."""
        with self._lock:
            # all ranks count their collectives alike, so equal numbers belong to the same one
            number = next(self._counts[rank, ranks])
            brought = self._collectives[ranks, number]
            brought[rank] = value
            if len(brought) == len(ranks):
                self._wake(ranks)
            self._wait(rank, lambda: len(brought) == len(ranks))
            self._collectives.pop((ranks, number), None)  # the first rank to leave removes it; `brought` lives on
            return [cast(T, brought[other]) for other in ranks]

    def _wake(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._changed[rank].notify_all()

    def _wait(self, rank: int, ready: Callable[[], bool]) -> None:
        self._changed[rank].wait_for(lambda: self._broken or ready())
        if self._broken:
            raise TeamBrokenError("another rank of this process has failed")


class ThreadTransport(Transport):
    """One rank's end of a hub."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self._rank = hub, rank
        self._expected: dict[int, Sequence[Tensor]] = {}

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        self._hub.put((message.source, message.target, message.number), StreamTensors.of(tensors))
        return []

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`Transport`."""
        self._expected[message.number] = tensors

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        key = (message.source, message.target, message.number)
        return [_Receive(self._hub, key, self._expected.pop(message.number))]

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`; no rank writes before all have read."""
        parts = self._meet(ranks, StreamTensors.of([tensor]))
        total = torch.stack([part.on_current_stream()[0] for part in parts]).sum(dim=0)
        for part in self._meet(ranks, StreamTensors.of([total])):
            part.on_current_stream()
        tensor.copy_(total)

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        return self._meet(self._hub.everyone, value)[source]

    def barrier(self) -> None:
        """See :class:`Transport`."""
        self._meet(self._hub.everyone, None)

    def _meet(self, ranks: tuple[int, ...], value: T) -> list[T]:
        return self._hub.meet(self._rank, ranks, value)


class _Receive(NamedTuple):
    """A message to be copied into its place."""

    hub: Hub
    key: MessageKey
    places: Sequence[Tensor]

    def wait(self) -> None:
        """Copy it as soon as it arrives."""
        for place, tensor in zip(self.places, self.hub.take(self.key).on_current_stream(), strict=True):
            place.copy_(tensor)
