"""Runs one micro-batch through a stage and back, timing each segment."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from stagecut.executor.measure.samples import Samples, fresh_state
from stagecut.executor.play.clock import Clock, Mark
from stagecut.executor.play.stage import LayerState, StageModule, from_state
from stagecut.models.modules.module_chain import ModuleChain


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A micro-batch between its forward and its backward: inputs and outputs of each segment."""

    inputs: tuple[LayerState, ...]
    outputs: tuple[LayerState, ...]


class TimedStage:
    """Layers of a chain as one stage, in segments between which the autograd graph is cut.

    Parameters
    ----------
    segments
        In order; a single segment is how the stage runs in training.
    stop
        One past the last layer; at the end of the chain the loss is part of the last segment.
    """

    def __init__(
        self, chain: ModuleChain, segments: Sequence[StageModule], *, start: int, stop: int, clock: Clock
    ) -> None:
        self._segments, self._clock = tuple(segments), clock
        self._loss = chain.loss if stop == len(chain.layers) else None
        self._needs_input_gradients = start > 0

    def forward(self, samples: Samples) -> tuple[InFlight, tuple[float, ...]]:
        """Run a forward; also returns the seconds of every segment."""
        state, inputs, outputs = samples.state, [], []
        marks = [self._clock.mark()]
        for index, segment in enumerate(self._segments):
            inputs.append(fresh_state(state, gradients=index > 0 or self._needs_input_gradients))
            state = segment(inputs[-1])
            if self._loss is not None and index == len(self._segments) - 1:
                state = (self._loss(from_state(state), samples.targets),)
            outputs.append(state)
            marks.append(self._clock.mark())
        return InFlight(inputs=tuple(inputs), outputs=tuple(outputs)), self._seconds(marks)

    def backward(self, passed: InFlight) -> tuple[float, ...]:
        """Run its backward; returns the seconds of every segment, in forward order."""
        gradients: list[Tensor | None] = [torch.ones_like(output) for output in passed.outputs[-1]]
        marks = [self._clock.mark()]
        for inputs, outputs in zip(reversed(passed.inputs), reversed(passed.outputs), strict=True):
            backward(outputs, gradients)
            gradients = [tensor.grad for tensor in inputs]
            marks.append(self._clock.mark())
        return self._seconds(marks)[::-1]

    def _seconds(self, marks: Sequence[Mark]) -> tuple[float, ...]:
        moments = [self._clock.resolve(mark) for mark in marks]
        return tuple(end - start for start, end in pairwise(moments))


def backward(outputs: LayerState, gradients: Sequence[Tensor | None]) -> None:
    """Run the backward from the outputs that require gradients and have one."""
    wanted = [
        (output, gradient)
        for output, gradient in zip(outputs, gradients, strict=True)
        if output.requires_grad and gradient is not None
    ]
    if wanted:
        torch.autograd.backward([output for output, _ in wanted], [gradient for _, gradient in wanted])
