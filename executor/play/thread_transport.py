"""Ranks as threads of one process: on a single GPU, or for a plan of one device."""

import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from stagecut.executor.play.distributed import Pending
from stagecut.executor.play.messages import Message
from stagecut.planner.core.errors import StagecutError

Key = tuple[int, int, int]
"""Source, target and number of a message."""


class TeamBrokenError(StagecutError):
    """Another rank of the process has failed."""


class Parcel(NamedTuple):
    """Tensors, and when the stream that computes them has done so."""

    tensors: Sequence[Tensor]
    event: torch.cuda.Event | None

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "Parcel":
        """Tensors of the current stream."""
        if not any(tensor.is_cuda for tensor in tensors):
            return cls(tensors, None)
        event = torch.cuda.Event()
        event.record()
        return cls(tensors, event)

    def open(self) -> Sequence[Tensor]:
        """The tensors, for use on the current stream, which may be another one."""
        if self.event is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.event)
            for tensor in self.tensors:
                tensor.record_stream(stream)
        return self.tensors


class Hub:
    """Where the threads of a process meet.

    Parameters
    ----------
    world_size
        Number of ranks.
    """

    def __init__(self, world_size: int) -> None:
        self.everyone = tuple(range(world_size))
        self._lock = threading.Lock()
        self._changed = [threading.Condition(self._lock) for _ in self.everyone]
        """Of each rank: what it waits for may have come. Nobody is woken for the messages of others."""
        self._mail: dict[Key, Parcel] = {}
        self._rounds: dict[tuple[tuple[int, ...], int], dict[int, object]] = defaultdict(dict)
        self._numbers: dict[tuple[int, tuple[int, ...]], itertools.count[int]] = defaultdict(itertools.count)
        """Of the meetings of some ranks that a rank has come to."""
        self._broken = False

    def transport(self, rank: int) -> "ThreadTransport":
        """The transport of one rank."""
        return ThreadTransport(self, rank)

    def break_up(self) -> None:
        """Let everyone who waits fail."""
        with self._lock:
            self._broken = True
            self._wake(self.everyone)

    def mend(self) -> None:
        """Begin anew, once all have stopped."""
        with self._lock:
            self._mail.clear()
            self._rounds.clear()
            self._numbers.clear()
            self._broken = False

    def put(self, key: Key, parcel: Parcel) -> None:
        """Leave a message."""
        with self._lock:
            self._mail[key] = parcel
            self._wake((key[1],))

    def take(self, key: Key) -> Parcel:
        """Wait for a message."""
        with self._lock:
            self._wait(key[1], lambda: key in self._mail)
            return self._mail.pop(key)

    def meet(self, rank: int, ranks: tuple[int, ...], value: object) -> list[object]:
        """Bring a value to the next meeting of some ranks; wait for all of theirs, in the order of `ranks`."""
        with self._lock:
            number = next(self._numbers[rank, ranks])
            brought = self._rounds[ranks, number]
            brought[rank] = value
            if len(brought) == len(ranks):
                self._wake(ranks)
            self._wait(rank, lambda: len(brought) == len(ranks))
            self._rounds.pop((ranks, number), None)
            return [brought[other] for other in ranks]

    def _wake(self, ranks: Iterable[int]) -> None:
        for rank in ranks:
            self._changed[rank].notify_all()

    def _wait(self, rank: int, ready: Callable[[], bool]) -> None:
        self._changed[rank].wait_for(lambda: self._broken or ready())
        if self._broken:
            raise TeamBrokenError("another rank of the process has failed")


class ThreadTransport:
    """One rank's end of a hub; see :class:`executor.play.transport.Transport`."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self._hub, self._rank = hub, rank
        self._expected: dict[int, Sequence[Tensor]] = {}

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`executor.play.transport.Transport`."""
        self._hub.put((message.source, message.target, message.number), Parcel.of(tensors))
        return []

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`executor.play.transport.Transport`."""
        self._expected[message.number] = tensors

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`executor.play.transport.Transport`."""
        key = (message.source, message.target, message.number)
        return [_Receive(self._hub, key, self._expected.pop(message.number))]

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`executor.play.transport.Transport`; nobody writes before everybody has read."""
        parts = self._meet(ranks, Parcel.of([tensor]))
        total = torch.stack([part.open()[0] for part in parts if isinstance(part, Parcel)]).sum(dim=0)
        for part in self._meet(ranks, Parcel.of([total])):
            if isinstance(part, Parcel):
                part.open()
        tensor.copy_(total)

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`executor.play.transport.Transport`."""
        return self._meet(self._hub.everyone, value)[source]

    def barrier(self) -> None:
        """See :class:`executor.play.transport.Transport`."""
        self._meet(self._hub.everyone, None)

    def _meet(self, ranks: tuple[int, ...], value: object) -> list[object]:
        return self._hub.meet(self._rank, ranks, value)


class _Receive(NamedTuple):
    """A message that is to be copied into its place."""

    hub: Hub
    key: Key
    places: Sequence[Tensor]

    def wait(self) -> None:
        """Copy it as soon as it is there."""
        for place, tensor in zip(self.places, self.hub.take(self.key).open(), strict=True):
            place.copy_(tensor)
