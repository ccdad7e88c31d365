"""Transport between processes, over torch.distributed."""

from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from itertools import repeat
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport import objects
from stagecut.executor.transport.interface import TORCH_DISTRIBUTED, Distributed, Pending, StreamTensors, Transport

MAX_TENSORS = 64
"""Tensors per message, at most."""


class DistributedTransport(Transport):
    """One rank's end of `torch.distributed`.

    Over gloo every message has its own tag. NCCL has no tags: there each ordered pair of ranks has its own
    communicator, on which both ends begin messages in the common order (:mod:`stagecut.executor.schedule.order`).
    The tensors of a message are one batch, which is one kernel on the group's communicator; a single send would create
    another one.

    Parameters
    ----------
    tagged
        Whether messages may overtake each other, as over gloo.
    groups
        Every set of ranks that takes part in a collective, the same on all ranks.
    pairs
        The (source, target) of every message, the same on all ranks; needed for NCCL only.
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
        # one communicator, and so one stream, per direction: no message queues behind others that still wait
        self._pairs = {pair: self._dist.new_group(sorted(pair), backend="nccl") for pair in own}
        self._expected: dict[int, StreamTensors] = {}
        self._received: dict[int, list[Pending]] = {}
        self._receiving: torch.cuda.Stream | None = None

    def connect(self, device: torch.device) -> None:
        """Use every NCCL communicator once, in the same order on all ranks, so that no later use has to set it up.

        The first use of a communicator, and the first message between two ranks, block the host until the other
        side arrives. There is no deadlock: the first communicator not yet set up has nothing before it on any of its
        ranks.
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
        """See :class:`Transport`; with tags, the receive can begin right away."""
        if self._tagged:
            self._received[message.number] = self._begin(self._dist.irecv, message.source, message, tensors)
        else:
            self._expected[message.number] = StreamTensors.of(tensors)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        if self._tagged:
            return self._received.pop(message.number)
        expected = self._expected.pop(message.number)
        with self._after(expected.event):
            return self._begin(self._dist.irecv, message.source, message, expected.tensors)

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

    def _after(self, free: torch.cuda.Event | None) -> AbstractContextManager[object]:
        """Wait only until the memory is free, not for all the work queued on the stream since then."""
        if free is None:
            return nullcontext()
        self._receiving = self._receiving or torch.cuda.Stream()
        self._receiving.wait_event(free)
        return torch.cuda.stream(self._receiving)

    def _begin(self, kind: Any, peer: int, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        group = None if self._tagged else self._pairs[message.source, message.target]
        tags = range(message.number * MAX_TENSORS, (message.number + 1) * MAX_TENSORS) if self._tagged else repeat(0)
        batch = [self._dist.P2POp(kind, tensor, peer, group, tag) for tensor, tag in zip(tensors, tags, strict=False)]
        return self._dist.batch_isend_irecv(batch) if batch else []

    def _group(self, ranks: Sequence[int]) -> dist.ProcessGroup:
        """All ranks create every group, including those they do not belong to."""
        everyone = self._dist.group.WORLD
        if len(ranks) == everyone.size():
            return cast(dist.ProcessGroup, everyone)
        return cast(dist.ProcessGroup, self._dist.new_group(list(ranks)))
