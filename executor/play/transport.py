"""How ranks exchange tensors."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any, NamedTuple, Protocol, cast

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.play import objects
from stagecut.executor.play.distributed import TORCH_DISTRIBUTED, Distributed, Pending
from stagecut.executor.play.messages import Message

MAX_TENSORS = 64
"""Of one message: the tensors of a state."""


class Transport(Protocol):
    """What the player needs of its world.

    All ranks call the collective ones in the same order, and begin to send and to receive in the order of
    :mod:`executor.play.order`.
    """

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """Begin to send the tensors of a message, which stay as they are until it has arrived."""
        ...

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Give the tensors that a message, which is received later, goes to."""
        ...

    def receive(self, message: Message) -> list[Pending]:
        """Begin to receive what is expected."""
        ...

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """Replace a tensor by its sum over some ranks, this one among them."""
        ...

    def broadcast(self, value: object, source: int) -> object:
        """What rank `source` gave: numbers, text, types of torch, tensors and containers of them."""
        ...

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        ...


class _Place(NamedTuple):
    """Where a message goes to."""

    tensors: Sequence[Tensor]
    free: torch.cuda.Event | None
    """When the stream that computes is done with what was in that memory before; None: it has no streams."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "_Place":
        """Tensors just made on the current stream."""
        if not any(tensor.is_cuda for tensor in tensors):
            return cls(tensors, None)
        event = torch.cuda.Event()
        event.record()
        return cls(tensors, event)


class DistributedTransport:
    """Ranks are processes of `torch.distributed`.

    Over gloo every message has a tag of its own. NCCL knows no tags: there each ordered pair of ranks has a
    communicator of its own, on which both begin the messages in the order that all ranks have in common
    (:mod:`executor.play.order`). The tensors of a message are one batch, which is one kernel, and uses the
    communicator of the group: a single send would make another one.

    Parameters
    ----------
    tagged
        Whether messages may overtake each other, as over gloo.
    groups
        Every set of ranks that does something together, the same on all ranks.
    pairs
        Every (source, target) of a message, the same on all ranks; needed for NCCL only.
    """

    def __init__(
        self,
        *,
        tagged: bool,
        groups: Iterable[tuple[int, ...]],
        pairs: Iterable[tuple[int, int]],
        distributed: Distributed = TORCH_DISTRIBUTED,
    ) -> None:
        self._dist, self._tagged = distributed, tagged
        self.groups = {ranks: self._group(ranks) for ranks in dict.fromkeys(groups)}
        own = () if tagged else dict.fromkeys(pairs)
        self._pairs = {pair: self._dist.new_group(sorted(pair), backend="nccl") for pair in own}
        self._expected: dict[int, _Place] = {}
        self._received: dict[int, list[Pending]] = {}
        self._aside: torch.cuda.Stream | None = None

    def connect(self, device: torch.device) -> None:
        """Use every communicator of NCCL once, in one order on all ranks, so that no later use has to set it up.

        The first use of a communicator, and the first message between two ranks, hold up the host until the
        other side is there. Waiting for each other in a circle is impossible: the first of them that is not yet
        set up has nothing before it on any of its ranks.
        """
        if self._tagged:
            return
        rank = self._dist.get_rank()
        number = torch.zeros(1, device=device)
        for ranks, group in self.groups.items():
            if rank in ranks:
                self._dist.all_reduce(number, group=group)
        for (source, target), group in self._pairs.items():
            if rank in (source, target):
                ends = (self._dist.isend, target) if rank == source else (self._dist.irecv, source)
                for pending in self._dist.batch_isend_irecv([self._dist.P2POp(ends[0], number, ends[1], group)]):
                    pending.wait()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        return self._begin(self._dist.isend, message.target, message, tensors)

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`Transport`; with tags nothing is in the way of receiving at once."""
        if self._tagged:
            self._received[message.number] = self._begin(self._dist.irecv, message.source, message, tensors)
        else:
            self._expected[message.number] = _Place.of(tensors)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        if self._tagged:
            return self._received.pop(message.number)
        place = self._expected.pop(message.number)
        with self._behind(place.free):
            return self._begin(self._dist.irecv, message.source, message, place.tensors)

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        if len(ranks) > 1:
            self._dist.all_reduce(tensor, group=self.groups[ranks])

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        return objects.broadcast(value, source, distributed=self._dist)

    def barrier(self) -> None:
        """See :class:`Transport`."""
        self._dist.barrier()

    def _behind(self, free: torch.cuda.Event | None) -> AbstractContextManager[object]:
        """Have what begins now wait for an event only, and not for all work that the stream has been given since."""
        if free is None:
            return nullcontext()
        self._aside = self._aside or torch.cuda.Stream()
        self._aside.wait_event(free)
        return torch.cuda.stream(self._aside)

    def _begin(self, kind: Any, peer: int, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        group = None if self._tagged else self._pairs[message.source, message.target]
        tags = range(message.number * MAX_TENSORS, (message.number + 1) * MAX_TENSORS) if self._tagged else repeat(0)
        batch = [self._dist.P2POp(kind, tensor, peer, group, tag) for tensor, tag in zip(tensors, tags, strict=False)]
        return self._dist.batch_isend_irecv(batch) if batch else []

    def _group(self, ranks: Sequence[int]) -> dist.ProcessGroup:
        """All ranks make every group; to those outside it is a number that they have no use for."""
        everyone = self._dist.group.WORLD
        if len(ranks) == everyone.size():
            return cast(dist.ProcessGroup, everyone)
        return cast(dist.ProcessGroup, self._dist.new_group(list(ranks)))
