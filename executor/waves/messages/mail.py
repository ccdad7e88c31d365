"""What crosses the boundaries of a stage, minibatch by minibatch, without an end."""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from stagecut.executor.play.signature import Signature, TensorLike, look, signature_of
from stagecut.executor.play.stage import LayerState
from stagecut.executor.schedule.messages import Message
from stagecut.executor.transport.interface import Pending, Transport
from stagecut.executor.waves.setting.waits import Waits
from stagecut.executor.waves.setting.wave_pace import WavePace
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.action_lists import Op

WINDOW = 1 << 20
"""Minibatches after which the numbers of messages repeat: no two of one number are under way at once."""
_HEADER_NUMBERS = 512
_TYPES = (
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool),
)


def message_of(op: Op, minibatch: int, *, stage: int, ends: tuple[int, int], size: int) -> Message:
    """The message of a minibatch from one rank to another; minibatch 0 stands for what it will look like."""
    number = 2 * (minibatch % WINDOW if minibatch else WINDOW) + (op is Op.BACKWARD)
    return Message(op, stage, 0, size, *ends, (), number)


class Outbox:
    """What a stage sends one of its neighbours.

    Parameters
    ----------
    ends
        This rank and the neighbour's.
    depth
        Messages under way before the oldest one is waited for.
    """

    def __init__(
        self, transport: Transport, op: Op, *, stage: int, ends: tuple[int, int], size: int, depth: int, pace: WavePace
    ) -> None:
        self._transport, self._op, self._stage, self._ends = transport, op, stage, ends
        self._size, self._depth, self._pace = size, depth, pace
        self._look: Signature | None = None
        self._sending: deque[tuple[list[Pending], Sequence[Tensor]]] = deque()

    def send(self, minibatch: int, tensors: Sequence[Tensor], waits: Waits) -> None:
        """Begin to send; the first message since `settle` says what all will look like."""
        found = signature_of(tuple(tensors))
        if self._look is None:
            self._begin(0, [_header_of(found)])
            self._look = found
        if found != self._look:
            raise BadInputError(
                f"stage {self._stage} sends {look(found)} per sample, but sent {look(self._look)} before: minibatches "
                "must not differ in shapes and types"
            )
        self._begin(minibatch, [tensor.contiguous() for tensor in tensors])
        while len(self._sending) > self._depth:
            self._wait(waits)

    def settle(self, waits: Waits) -> None:
        """Wait until all has arrived."""
        while self._sending:
            self._wait(waits)
        self._look = None

    def _begin(self, minibatch: int, tensors: Sequence[Tensor]) -> None:
        message = message_of(self._op, minibatch, stage=self._stage, ends=self._ends, size=self._size)
        if minibatch:
            self._pace.sent(message)
        self._sending.append((self._transport.send(message, tensors), tensors))

    def _wait(self, waits: Waits) -> None:
        pendings, _ = self._sending.popleft()
        with waits.link():
            for pending in pendings:
                pending.wait()


class Inbox:
    """What comes from one neighbour; memory for the next message is there one minibatch ahead.

    Parameters
    ----------
    ends
        The neighbour's rank and this one.
    size
        Samples of a minibatch.
    """

    def __init__(
        self,
        transport: Transport,
        op: Op,
        *,
        stage: int,
        ends: tuple[int, int],
        size: int,
        device: torch.device,
        pace: WavePace,
    ) -> None:
        self._transport, self._op, self._stage, self._ends = transport, op, stage, ends
        self._size, self._device, self._pace = size, device, pace
        self._look: Signature | None = None
        self._room: dict[int, Sequence[Tensor]] = {}
        self._last = 0

    def open(self, last: int) -> None:
        """Expect minibatches up to the last one."""
        self._last, self._look = last, None

    def take(self, minibatch: int, waits: Waits) -> LayerState:
        """Wait for a message."""
        if self._look is None:
            header = torch.zeros(_HEADER_NUMBERS, dtype=torch.int64, device=self._device)
            self._transport.expect(self._message(0), [header])
            self._finish(0, waits)
            self._look = _look_of(header)
        self._expect(minibatch)
        if minibatch < self._last:
            self._expect(minibatch + 1)
        tensors = self._room.pop(minibatch)
        self._finish(minibatch, waits)
        return tuple(tensors)

    def _expect(self, minibatch: int) -> None:
        assert self._look is not None
        if minibatch not in self._room:
            self._room[minibatch] = [like.empty(self._size, self._device) for like in self._look]
            self._transport.expect(self._message(minibatch), self._room[minibatch])

    def _finish(self, minibatch: int, waits: Waits) -> None:
        with waits.pipeline():
            message = self._message(minibatch)
            for pending in self._transport.receive(message):
                pending.wait()
            if minibatch:
                self._pace.received(message)

    def _message(self, minibatch: int) -> Message:
        return message_of(self._op, minibatch, stage=self._stage, ends=self._ends, size=self._size)


def _header_of(look: Signature) -> Tensor:
    """A signature as numbers: how many tensors, then type, dimensions and sizes of each."""
    numbers = [len(look)]
    for like in look:
        numbers += [_TYPES.index(like.dtype), len(like.shape), *like.shape]
    return torch.tensor(numbers + [0] * (_HEADER_NUMBERS - len(numbers)), dtype=torch.int64)


def _look_of(header: Tensor) -> Signature:
    numbers = iter(header.tolist())
    likes = []
    for _ in range(next(numbers)):
        dtype = _TYPES[next(numbers)]
        likes.append(TensorLike(tuple(next(numbers) for _ in range(next(numbers))), dtype))
    return tuple(likes)
