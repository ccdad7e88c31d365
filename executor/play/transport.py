"""How ranks exchange tensors."""

from collections.abc import Iterable, Sequence
from typing import Protocol, cast

import torch.distributed as dist
from torch import Tensor

from executor.play import objects
from executor.play.messages import Message
from planner.simulator.schedules import Op

MAX_TENSORS = 64
"""Of one message: the tensors of a state."""


class Pending(Protocol):
    """A send or receive under way."""

    def wait(self) -> object:
        """Return when it is done; on a GPU, when its stream can rely on it."""
        ...


class Transport(Protocol):
    """What the player needs of its world; all ranks call the collective ones in the same order."""

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """Begin to send the tensors of a message, which stay as they are until it has arrived."""
        ...

    def receive(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """Begin to receive into these tensors."""
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


class DistributedTransport:
    """Ranks are processes of `torch.distributed`.

    Over gloo every message has a tag of its own. NCCL knows no tags: messages of one flow between two
    ranks have a communicator of their own, on which both sides keep the order of the samples.

    Parameters
    ----------
    tagged
        Whether messages may overtake each other, as over gloo.
    groups
        Every set of ranks that does something together, the same on all ranks.
    flows
        Every (source, target, op, stage) of a message, the same on all ranks; needed for NCCL only.
    """

    def __init__(
        self, *, tagged: bool, groups: Iterable[tuple[int, ...]], flows: Iterable[tuple[int, int, Op, int]]
    ) -> None:
        self._tagged = tagged
        self.groups = {ranks: _group(ranks) for ranks in dict.fromkeys(groups)}
        own = () if tagged else dict.fromkeys(flows)
        self._flows = {flow: _own_group(sorted(flow[:2])) for flow in own}

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        group, tag = self._way(message)
        return [_pending(dist.isend(t, message.target, group=group, tag=tag + i)) for i, t in enumerate(tensors)]

    def receive(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        group, tag = self._way(message)
        return [_pending(dist.irecv(t, message.source, group=group, tag=tag + i)) for i, t in enumerate(tensors)]

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        if len(ranks) > 1:
            dist.all_reduce(tensor, group=self.groups[ranks])

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        return objects.broadcast(value, source)

    def barrier(self) -> None:
        """See :class:`Transport`."""
        dist.barrier()

    def _way(self, message: Message) -> tuple[dist.ProcessGroup | None, int]:
        if self._tagged:
            return None, message.number * MAX_TENSORS
        return self._flows[message.source, message.target, message.op, message.stage], 0


def _group(ranks: Sequence[int]) -> dist.ProcessGroup:
    everyone = dist.group.WORLD
    return everyone if everyone and len(ranks) == everyone.size() else _own_group(ranks)


def _own_group(ranks: Sequence[int]) -> dist.ProcessGroup:
    """All ranks make every group; to those outside it is a number that they have no use for."""
    return cast(dist.ProcessGroup, dist.new_group(list(ranks)))


def _pending(work: Pending | None) -> Pending:
    assert work is not None  # None is for ranks outside the group, which have no message to send
    return work
