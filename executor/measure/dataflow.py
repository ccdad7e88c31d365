"""Traces which tensors pass from layer to layer and which skip layers, by running a chain."""

from typing import NamedTuple

from torch import Tensor

from stagecut.executor.play.stage import LayerState
from stagecut.planner.core.model import SkipEdge


class _Traced(NamedTuple):
    """A tensor of the state, with the layer that made it and its position in that layer's output."""

    tensor: Tensor
    source: int
    place: int


class Dataflow:
    """Traces the state through one run. A tensor that a layer returns unchanged skips that layer.

    Inputs of the chain that skip the first layer count as its outputs.
    """

    def __init__(self, inputs: LayerState) -> None:
        self._state = [_Traced(tensor, -1, place) for place, tensor in enumerate(inputs)]
        self._bytes: dict[tuple[int, int], int] = {}
        self._passing: set[tuple[int, int]] = set()

    def step(self, layer: int, state: LayerState) -> None:
        """Advance past a layer that returned this state."""
        given, self._state = self._state, []
        for place, tensor in enumerate(state):
            index = next((index for index, sent in enumerate(given) if sent.tensor is tensor), None)
            sent = _Traced(tensor, layer, place) if index is None else given.pop(index)
            self._state.append(sent)
            if index is not None:
                self._passing.add((sent.source, sent.place))
        self._take(given, layer)

    def leave(self, last: int) -> None:
        """Finish at the last layer, which consumes whatever has skipped it."""
        self._take([sent for sent in self._state if sent.source < last], last)

    def comes_from_neighbour(self) -> tuple[bool, ...]:
        """Whether the previous layer made each tensor of the current state."""
        newest = max(sent.source for sent in self._state)
        return tuple(sent.source == newest for sent in self._state)

    def passes_by(self, layer: int, place: int) -> bool:
        """Whether an output of a layer, by position, skipped the next layer."""
        return (layer, place) in self._passing

    def output_bytes(self, layer: int) -> int:
        """Bytes that a layer makes for the next one."""
        return self._bytes.get((layer, layer + 1), 0)

    def skip_edges(self, num_samples: int) -> tuple[SkipEdge, ...]:
        """Tensors that skip at least one layer, in order of source, in bytes per sample."""
        return tuple(
            SkipEdge(source=source, target=target, num_bytes=num_bytes / num_samples)
            for (source, target), num_bytes in sorted(self._bytes.items())
            if target - source > 1
        )

    def _take(self, taken: list[_Traced], layer: int) -> None:
        for tensor, source, _ in taken:
            edge = (max(source, 0), layer)
            if edge[0] < layer:
                self._bytes[edge] = self._bytes.get(edge, 0) + tensor.numel() * tensor.element_size()
