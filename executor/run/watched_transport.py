"""A transport that says whom it waits for."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor

from stagecut.executor.play.distributed import Pending
from stagecut.executor.play.messages import Message
from stagecut.executor.play.transport import Transport
from stagecut.executor.run.whereabouts import Whereabouts
from stagecut.executor.run.world import World


class WatchedTransport:
    """Another transport, whose waits are seen by all ranks of the machine and end in a :class:`WaitError`.

    That is how a rank that waits in vain finds out who is to blame: see :mod:`executor.run.whereabouts`.
    """

    def __init__(self, transport: Transport, world: World) -> None:
        self._transport, self._everyone, self._whereabouts = transport, world.everyone, world.whereabouts

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for((message.target,)):
            return self._watched(self._transport.send(message, tensors), message.target)

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for((message.source,)):
            self._transport.expect(message, tensors)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for((message.source,)):
            return self._watched(self._transport.receive(message), message.source)

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for(ranks):
            self._transport.sum(tensor, ranks)

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for((source,)):
            return self._transport.broadcast(value, source)

    def barrier(self) -> None:
        """See :class:`Transport`."""
        with self._whereabouts.waiting_for(self._everyone):
            self._transport.barrier()

    def _watched(self, pendings: Sequence[Pending], rank: int) -> list[Pending]:
        return [_Watched(pending, rank, self._whereabouts) for pending in pendings]


class _Watched(NamedTuple):
    pending: Pending
    rank: int
    whereabouts: Whereabouts

    def wait(self) -> object:
        """See :class:`Pending`."""
        with self.whereabouts.waiting_for((self.rank,)):
            return self.pending.wait()
