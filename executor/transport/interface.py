"""The interface between the player and whatever carries its messages."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor

from stagecut.executor.schedule.messages import Message

Distributed: TypeAlias = Any
"""The module `torch.distributed`, or a stand-in with the same functions."""
TORCH_DISTRIBUTED: Distributed = dist


class Pending(Protocol):
    """A send or receive in progress."""

    def wait(self) -> object:
        """Return when it is done; on a GPU, when the current stream may rely on it."""
        ...


class Transport(Protocol):
    """How one rank exchanges tensors with the others.

    All ranks call the collective operations in the same order, and begin sends and receives in the order of
    :mod:`stagecut.executor.schedule.order`.
    """

    def send(self, message: Message, tensors: Sequence[Tensor]) -> list[Pending]:
        """Begin to send the tensors of a message; they must not change until it has arrived."""
        ...

    def expect(self, message: Message, tensors: Sequence[Tensor]) -> None:
        """Provide the tensors into which a message will be received later."""
        ...

    def receive(self, message: Message) -> list[Pending]:
        """Begin to receive an expected message."""
        ...

    def sum(self, tensor: Tensor, ranks: tuple[int, ...]) -> None:
        """All-reduce a tensor in place over some ranks, including this one."""
        ...

    def broadcast(self, value: object, source: int) -> object:
        """The value given by rank `source`: numbers, text, torch types, tensors, and containers of them."""
        ...

    def barrier(self) -> None:
        """Wait for all ranks."""
        ...


class StreamTensors(NamedTuple):
    """Tensors, and an event after the last work on them in the stream that made them."""

    tensors: Sequence[Tensor]
    event: torch.cuda.Event | None
    """None for tensors outside GPUs."""

    @classmethod
    def of(cls, tensors: Sequence[Tensor]) -> "StreamTensors":
        """Tensors made on the current stream."""
        if not any(tensor.is_cuda for tensor in tensors):
            return cls(tensors, None)
        event = torch.cuda.Event()
        event.record()
        return cls(tensors, event)

    def on_current_stream(self) -> Sequence[Tensor]:
        """The tensors, safe to use on the current stream, which may be another one."""
        if self.event is not None:
            stream = torch.cuda.current_stream()
            stream.wait_event(self.event)
            for tensor in self.tensors:
                tensor.record_stream(stream)
        return self.tensors
