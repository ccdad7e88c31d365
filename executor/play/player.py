"""Plays the turns of one rank: waits, computes and sends, one action after another."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
from torch import Tensor

from stagecut.executor.play.clock import Clock, Mark
from stagecut.executor.play.context import RankContext
from stagecut.executor.play.mail import Mail
from stagecut.executor.play.pace import Pace
from stagecut.executor.play.signature import Signature, look, signature_of
from stagecut.executor.play.stage import LayerState, StageModule
from stagecut.executor.schedule.messages import Piece
from stagecut.executor.schedule.turns import Turn
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.simulator.action_lists import Action, Op


class Played(NamedTuple):
    """An action and when it was played."""

    action: Action
    ready: Mark
    start: Mark
    end: Mark


class Feed(NamedTuple):
    """Inputs for the first stage, and the objective for the last."""

    inputs: Callable[[Piece], LayerState]
    objective: Callable[[Piece, LayerState], Tensor]
    """The piece's part of the mean loss over the global batch."""


class Player:
    """One rank's part of a pipeline.

    Sends and receives begin in the order given by the turns. A receive gets its memory one turn ahead, as a slice
    of the tensor in which it will be used. A send is waited for only when something that the receiver did later
    has come back, and at the end, so that no such wait costs time.

    Parameters
    ----------
    stages
        The rank's stages, by index.
    boundaries
        What crosses the boundary before each stage, shape (number of stages + 1,); nothing at the ends.
    lock
        Held while the rank computes: threads of one process that recompute share a generator.
    """

    def __init__(
        self,
        *,
        stages: Mapping[int, StageModule],
        boundaries: Sequence[Signature],
        context: RankContext,
        clock: Clock,
        pace: Pace,
        lock: AbstractContextManager[object],
    ) -> None:
        self._stages, self._boundaries = stages, boundaries
        self._mail = Mail(boundaries=boundaries, context=context, pace=pace)
        self._clock, self._pace, self._lock = clock, pace, lock
        self._last = len(boundaries) - 2
        self._clear()
        self.losses: list[Tensor] = []
        """The parts of the mean loss computed by this rank in the last step, detached."""
        self.action: Action | None = None
        """The current action, for error messages."""

    def play(self, turns: Sequence[Turn], feed: Feed) -> list[Played]:
        """Play all turns of a step; gradients accumulate in the parameters, unless disabled."""
        self.losses = []
        played = [self._play(turn, feed) for turn in turns]
        self.action = None
        return played

    def settle(self) -> None:
        """Wait for the last sends, once there is nothing else to do."""
        self._mail.settle()
        self._clear()

    def _clear(self) -> None:
        self._inputs: dict[Piece, LayerState] = {}
        self._outputs: dict[Piece, LayerState] = {}
        self._halves: dict[Action, tuple[list[Tensor], list[Tensor | None]]] = {}

    def _play(self, turn: Turn, feed: Feed) -> Played:
        self.action = turn.action
        ready = self._clock.mark()
        self._mail.expect(turn.posts)
        self._mail.begin(turn.posts)
        # Receives that begin after this action get their memory before it: over NCCL they then wait for the work queued
        # on the stream so far, not for this action; over gloo they begin right away.
        self._mail.expect(turn.begins)
        for message in turn.receives:
            self._mail.take(message)
        self._mail.release(turn.releases)
        start = self._clock.mark()
        self._pace.begin()
        with self._lock:
            made = self._compute(turn, feed)
        self._pace.finish(turn.action.op, turn.action.stage, turn.action.hi - turn.action.lo)
        end = self._clock.mark()
        self._mail.fill(turn.fills, made)
        self._mail.complete(turn.sends)
        self._mail.begin(turn.begins)
        return Played(turn.action, ready, start, end)

    def _compute(self, turn: Turn, feed: Feed) -> dict[Piece, Sequence[Tensor]]:
        """Do the work of a turn; return what the neighbouring stages need of each piece."""
        op = turn.action.op
        if op is Op.FORWARD:
            return {piece: self._forward(piece, feed) for piece in turn.pieces}
        if op is Op.BACKWARD:
            torch.autograd.backward(*self._roots(turn))
            return {piece: self._taken_gradients(piece) for piece in turn.pieces}
        if op is Op.INPUT_GRADIENT:
            return self._input_gradients(turn)
        # second half of a split backward: the neighbour has the gradients of the inputs, so only weights are left
        outputs, gradients = self._halves.pop(turn.action._replace(op=Op.INPUT_GRADIENT))
        weights = [weight for weight in self._stages[turn.action.stage].parameters() if weight.requires_grad]
        torch.autograd.backward(outputs, gradients, inputs=weights)
        return {}

    def _forward(self, piece: Piece, feed: Feed) -> LayerState:
        state = feed.inputs(piece) if piece.stage == 0 else tuple(self._mail.whole(Op.FORWARD, piece))
        if torch.is_grad_enabled():
            # leaves of this stage's graph, whose gradients the previous stage waits for; the model's inputs need none
            for tensor in state if piece.stage > 0 else ():
                tensor.requires_grad_(tensor.is_floating_point())
            self._inputs[piece] = state
        output = self._stages[piece.stage](state)
        if piece.stage == self._last:
            output = (feed.objective(piece, output),)
            self.losses.append(output[0].detach())
        else:
            self._check_output(piece, output)
        if torch.is_grad_enabled():
            self._outputs[piece] = output
        return tuple(tensor.detach() for tensor in output)

    def _check_output(self, piece: Piece, output: LayerState) -> None:
        """Refuse outputs that differ from what the next stage has allocated memory for."""
        found, expected = signature_of(output), self._boundaries[piece.stage + 1]
        if found != expected or any(len(tensor) != piece.hi - piece.lo for tensor in output):
            raise BadInputError(
                f"stage {piece.stage} outputs {look(found)} per sample, but a trial run of one sample gave "
                f"{look(expected)}: the shapes and types of a layer's outputs may depend only on those of its inputs, "
                "and dimension 0 must count samples"
            )

    def _roots(self, turn: Turn) -> tuple[list[Tensor], list[Tensor | None]]:
        """The outputs at which the backward of a turn begins, and their gradients; losses have none."""
        outputs: list[Tensor] = []
        gradients: list[Tensor | None] = []
        for piece in turn.pieces:
            own = [tensor for tensor in self._outputs.pop(piece) if tensor.is_floating_point()]
            incoming: Sequence[Tensor | None] = (
                [None] if piece.stage == self._last else self._mail.whole(Op.BACKWARD, piece)
            )
            for output, gradient in zip(own, incoming, strict=True):
                if output.requires_grad:  # not so for what no weight or gradient-requiring input has touched
                    outputs.append(output)
                    gradients.append(gradient)
        return outputs, gradients

    def _input_gradients(self, turn: Turn) -> dict[Piece, Sequence[Tensor]]:
        """First half of a split backward; the graph is kept for the second."""
        outputs, gradients = self._halves[turn.action] = self._roots(turn)
        states = {piece: _floating(self._inputs.pop(piece)) for piece in turn.pieces}
        inputs = [tensor for state in states.values() for tensor in state if tensor.requires_grad]
        if not inputs:
            return dict.fromkeys(turn.pieces, ())
        found = iter(torch.autograd.grad(outputs, inputs, gradients, retain_graph=True, allow_unused=True))
        return {piece: [_or_zeros(next(found), tensor) for tensor in state] for piece, state in states.items()}

    def _taken_gradients(self, piece: Piece) -> list[Tensor]:
        """Gradients of a piece's inputs, from the backward just run; the first stage needs none."""
        state = self._inputs.pop(piece)
        return [_or_zeros(tensor.grad, tensor) for tensor in _floating(state)] if piece.stage > 0 else []


def _floating(state: LayerState) -> list[Tensor]:
    return [tensor for tensor in state if tensor.is_floating_point()]


def _or_zeros(gradient: Tensor | None, tensor: Tensor) -> Tensor:
    return torch.zeros_like(tensor) if gradient is None else gradient
