"""What one rank has for others, and what has come for it."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from stagecut.executor.play.context import RankContext
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.signature import Signature, TensorLike
from stagecut.executor.schedule.messages import Message, Part, Piece
from stagecut.executor.transport.interface import Pending
from stagecut.planner.simulator.action_lists import Op


class Mail:
    """Puts messages together from what a rank computes, and takes those for it apart.

    The parts of a message travel joined, one tensor for each of the state. A message with a single part goes straight
    into its place in the tensor that will be used; several come together and are copied to their places.

    Parameters
    ----------
    boundaries
        What crosses the boundary before each stage, shape (number of stages + 1,); nothing at the ends.
    """

    def __init__(self, *, boundaries: Sequence[Signature], context: RankContext, pace: Pace) -> None:
        self._boundaries, self._pace = boundaries, pace
        self._transport, self._device, self._rank = context.transport, context.device, context.role.rank
        self.clear()

    def clear(self) -> None:
        """Drop everything."""
        self._filled: dict[int, dict[Part, list[Tensor]]] = defaultdict(dict)
        """Parts of messages that are not complete yet, by message number."""
        self._leaving: dict[int, Sequence[Tensor]] = {}
        """Complete but not yet sent, or for this rank itself."""
        self._sending: dict[int, tuple[list[Pending], Sequence[Tensor]]] = {}
        self._receiving: dict[int, list[Pending]] = {}
        self._joined: dict[int, Sequence[Tensor]] = {}
        """Where messages of several parts come in."""
        self._whole: dict[tuple[Op, Piece], list[Tensor]] = {}
        """For each piece its inputs, or the gradients of its outputs, as they arrive."""

    def expect(self, messages: Sequence[Message]) -> None:
        """Provide the memory for messages; those that this rank sends itself are passed over."""
        for message in messages:
            if message.target == self._rank:
                self._transport.expect(message, self._room(message))

    def begin(self, messages: Sequence[Message]) -> None:
        """Begin to send or to receive."""
        for message in messages:
            if message.target == self._rank:
                self._receiving[message.number] = self._transport.receive(message)
            else:
                tensors = self._leaving.pop(message.number)
                self._sending[message.number] = (self._transport.send(message, tensors), tensors)

    def take(self, message: Message) -> None:
        """Wait for a message and put its parts in their places."""
        if message.is_local:
            self._divide(message, self._leaving.pop(message.number))
            return
        for pending in self._receiving.pop(message.number):
            pending.wait()
        self._pace.received(message)
        if message.number in self._joined:
            self._divide(message, self._joined.pop(message.number))

    def whole(self, op: Op, piece: Piece) -> list[Tensor]:
        """The inputs of a piece, or the gradients of its outputs, once all their messages have been taken."""
        return self._whole.pop((op, piece))

    def fill(self, messages: Sequence[Message], made: Mapping[Piece, Sequence[Tensor]]) -> None:
        """Set aside what has been computed of messages."""
        for message in messages:
            for part in message.parts:
                if part.sent in made:
                    own = slice(part.lo - part.sent.lo, part.hi - part.sent.lo)
                    self._filled[message.number][part] = [tensor[own] for tensor in made[part.sent]]

    def complete(self, messages: Sequence[Message]) -> None:
        """Join the parts of messages that have all been computed."""
        for message in messages:
            filled = self._filled.pop(message.number)
            parts = [filled[part] for part in message.parts]
            self._leaving[message.number] = [_joined(tensors) for tensors in zip(*parts, strict=True)]
            if not message.is_local:
                self._pace.sent(message)

    def release(self, messages: Sequence[Message]) -> None:
        """Wait for sends that have certainly arrived."""
        for message in messages:
            self._wait_for(message.number)

    def settle(self) -> None:
        """Wait for the last sends, once there is nothing else to do."""
        for number in list(self._sending):
            self._wait_for(number)
        self.clear()

    def _wait_for(self, number: int) -> None:
        for pending in self._sending.pop(number)[0]:
            pending.wait()

    def _room(self, message: Message) -> Sequence[Tensor]:
        if len(message.parts) == 1:
            return self._places(message, message.parts[0])
        size = sum(part.hi - part.lo for part in message.parts)
        likes = self._likes(message.op, message.parts[0].taken)
        self._joined[message.number] = [like.empty(size, self._device) for like in likes]
        return self._joined[message.number]

    def _divide(self, message: Message, tensors: Sequence[Tensor]) -> None:
        done = 0
        for part in message.parts:
            size = part.hi - part.lo
            for place, tensor in zip(self._places(message, part), tensors, strict=True):
                place.copy_(tensor[done : done + size])
            done += size

    def _places(self, message: Message, part: Part) -> list[Tensor]:
        """The part's place in the receiver's tensors, which are allocated for the first one of a piece."""
        piece, key = part.taken, (message.op, part.taken)
        if key not in self._whole:
            likes = self._likes(*key)
            self._whole[key] = [like.empty(piece.hi - piece.lo, self._device) for like in likes]
        return [tensor[part.lo - piece.lo : part.hi - piece.lo] for tensor in self._whole[key]]

    def _likes(self, op: Op, taken: Piece) -> Sequence[TensorLike]:
        """What comes for a piece: the state before its stage, or the gradients of the one behind it."""
        if op is Op.FORWARD:
            return self._boundaries[taken.stage]
        return [like for like in self._boundaries[taken.stage + 1] if like.dtype.is_floating_point]


def _joined(tensors: Sequence[Tensor]) -> Tensor:
    return tensors[0].contiguous() if len(tensors) == 1 else torch.cat(list(tensors))
