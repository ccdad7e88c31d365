"""One micro-batch through a stage and back, timed segment by segment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from stagecut.executor.measure.samples import Samples, fresh_state, loss_of
from stagecut.executor.play.clock import Clock, Mark
from stagecut.executor.play.stage import StageModule, State
from stagecut.models.module_chain import ModuleChain


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A micro-batch between its forward and its backward; for each segment what went in and what came out."""

    inputs: tuple[State, ...]
    outputs: tuple[State, ...]


class TimedStage:
    """Layers of a chain as one stage, in segments between which the history is cut.

    Parameters
    ----------
    segments
        One after another; a single one is how the stage runs in a training.
    stop
        One past the last layer; at the end of the chain the loss is part of the last segment.
    clock
        Of the device.
    """

    def __init__(
        self, chain: ModuleChain, segments: Sequence[StageModule], *, start: int, stop: int, clock: Clock
    ) -> None:
        self._segments, self._clock = tuple(segments), clock
        self._loss = chain.loss if stop == len(chain.layers) else None
        self._asks_for_gradients = start > 0

    def forward(self, samples: Samples) -> tuple[Held, tuple[float, ...]]:
        """A forward, and the seconds of every segment."""
        state, inputs, outputs = samples.state, [], []
        marks = [self._clock.mark()]
        for index, segment in enumerate(self._segments):
            inputs.append(fresh_state(state, gradients=index > 0 or self._asks_for_gradients))
            state = segment(inputs[-1])
            if self._loss is not None and index == len(self._segments) - 1:
                state = (loss_of(self._loss, state, samples.targets),)
            outputs.append(state)
            marks.append(self._clock.mark())
        return Held(inputs=tuple(inputs), outputs=tuple(outputs)), self._seconds(marks)

    def backward(self, held: Held) -> tuple[float, ...]:
        """The backward of that forward, and the seconds of every segment, the first one first."""
        gradients: list[Tensor | None] = [torch.ones_like(output) for output in held.outputs[-1]]
        marks = [self._clock.mark()]
        for inputs, outputs in zip(reversed(held.inputs), reversed(held.outputs), strict=True):
            _backward(outputs, gradients)
            gradients = [tensor.grad for tensor in inputs]
            marks.append(self._clock.mark())
        return self._seconds(marks)[::-1]

    def _seconds(self, marks: Sequence[Mark]) -> tuple[float, ...]:
        moments = [self._clock.resolve(mark) for mark in marks]
        return tuple(end - start for start, end in pairwise(moments))


def _backward(outputs: State, gradients: Sequence[Tensor | None]) -> None:
    wanted = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if output.requires_grad and gradient is not None
    ]
    if wanted:
        torch.autograd.backward([output for output, _ in wanted], [gradient for _, gradient in wanted])
