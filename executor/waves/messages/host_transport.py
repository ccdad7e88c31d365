"""Messages between GPUs of different processes by way of host memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport


class HostTransport(Transport):
    """Wraps a transport of tensors in host memory for a rank that computes elsewhere.

    A pipeline without a flush has no common order in which NCCL's operations could begin; gloo needs none.
    """

    def __init__(self, transport: Transport, device: torch.device) -> None:
        self._transport, self._device = transport, device
        self._expected: dict[int, tuple[Sequence[Tensor], Sequence[Tensor]]] = {}

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """See :class:`Transport`."""
        host = [tensor.cpu() for tensor in tensors]
        return [_Kept(pending, host) for pending in self._transport.send(message, host)]

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """See :class:`Transport`."""
        host = [torch.empty(tensor.shape, dtype=tensor.dtype) for tensor in tensors]
        self._expected[message.number] = host, tensors
        self._transport.expect(message, host)

    def receive(self, message: Message) -> list[Pending]:
        """See :class:`Transport`."""
        host, places = self._expected.pop(message.number)
        return [_Copied(self._transport.receive(message), host, places)]

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """See :class:`Transport`."""
        host = tensor.cpu()
        self._transport.sum(host, ranks)
        tensor.copy_(host)

    def broadcast(self, value: object, source: int) -> object:
        """See :class:`Transport`."""
        return self._transport.broadcast(value, source)

    def barrier(self) -> None:
        """See :class:`Transport`."""
        self._transport.barrier()


@dataclass(frozen=True, slots=True)
class _Kept:
    """A send whose copy in host memory lives until it has left."""

    pending: Pending
    tensors: Sequence[Tensor]

    def wait(self) -> object:
        """See :class:`Pending`."""
        return self.pending.wait()


@dataclass(frozen=True, slots=True)
class _Copied:
    """A receive that ends in another memory."""

    pendings: Sequence[Pending]
    host: Sequence[Tensor]
    places: Sequence[Tensor]

    def wait(self) -> None:
        """See :class:`Pending`."""
        for pending in self.pendings:
            pending.wait()
        for place, tensor in zip(self.places, self.host, strict=True):
            place.copy_(tensor)
