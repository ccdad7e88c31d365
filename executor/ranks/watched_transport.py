"""A transport that records whom it waits for."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from stagecut.executor.ranks.wait_graph import WaitGraph
from stagecut.executor.ranks.world import World
from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport


class WatchedTransport(Transport):
    """Wraps a transport and records its waits where all ranks of the machine see them.

    That is how a rank that waits in vain finds out who is to blame, and raises a
    :class:`stagecut.executor.ranks.failures.WaitError`: see :mod:`stagecut.executor.ranks.wait_graph`.
    """

    def __init__(self, transport: Transport, world: World) -> None:
        self._transport, self._everyone, self._graph = transport, world.everyone, world.wait_graph

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        with self._graph.waiting_for((message.target,)):
            return self._watched(self._transport.send(message, tensors), message.target)

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`Transport`."""
        with self._graph.waiting_for((message.source,)):
            self._transport.expect(message, tensors)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        with self._graph.waiting_for((message.source,)):
            return self._watched(self._transport.receive(message), message.source)

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        with self._graph.waiting_for(ranks):
            self._transport.sum(tensor, ranks)

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        with self._graph.waiting_for((source,)):
            return self._transport.broadcast(value, source)

    def barrier(self) -> None:
        """See :class:`Transport`."""
        with self._graph.waiting_for(self._everyone):
            self._transport.barrier()

    def _watched(self, pendings: Sequence[Pending], rank: int) -> list[Pending]:
        return [_WatchedPending(pending, rank, self._graph) for pending in pendings]


class _WatchedPending(NamedTuple):
    pending: Pending
    rank: int
    graph: WaitGraph

    def wait(self) -> object:
        """See :class:`Pending`."""
        with self.graph.waiting_for((self.rank,)):
            return self.pending.wait()
