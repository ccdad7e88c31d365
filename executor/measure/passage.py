"""Which tensors pass from layer to layer, and which pass by some layers: skip edges, found by running a chain."""

from typing import NamedTuple

from torch import Tensor

from stagecut.executor.play.stage import State
from stagecut.planner.core.model import SkipEdge


class _Sent(NamedTuple):
    """A tensor of the state, with the layer that made it and its place among what that layer handed on."""

    tensor: Tensor
    source: int
    place: int


class Passage:
    """Follows the state of one run; a tensor that a layer hands on as it was given passes by that layer.

    Inputs of the chain that pass by the first layer count as made by it.
    """

    def __init__(self, inputs: State) -> None:
        self._state = [_Sent(tensor, -1, place) for place, tensor in enumerate(inputs)]
        self._bytes: dict[tuple[int, int], int] = {}
        self._passing: set[tuple[int, int]] = set()

    def step(self, layer: int, state: State) -> None:
        """Go past one layer, which hands on this state."""
        given, self._state = self._state, []
        for place, tensor in enumerate(state):
            index = next((index for index, sent in enumerate(given) if sent.tensor is tensor), None)
            sent = _Sent(tensor, layer, place) if index is None else given.pop(index)
            self._state.append(sent)
            if index is not None:
                self._passing.add((sent.source, sent.place))
        self._take(given, layer)

    def leave(self, last: int) -> None:
        """End with the last layer, which takes what has passed it by."""
        self._take([sent for sent in self._state if sent.source < last], last)

    def comes_from_neighbour(self) -> tuple[bool, ...]:
        """For each tensor of the state at hand, whether it was made by the layer just passed."""
        newest = max(sent.source for sent in self._state)
        return tuple(sent.source == newest for sent in self._state)

    def passes_by(self, layer: int, place: int) -> bool:
        """Whether what a layer handed on in that place of the state passed by the next one."""
        return (layer, place) in self._passing

    def output_bytes(self, layer: int) -> int:
        """What a layer makes for the next one."""
        return self._bytes.get((layer, layer + 1), 0)

    def skip_edges(self, samples: int) -> tuple[SkipEdge, ...]:
        """What passes by at least one layer, in the order of the layers that make it, for each of so many samples."""
        return tuple(
            SkipEdge(source=source, target=target, num_bytes=num_bytes / samples)
            for (source, target), num_bytes in sorted(self._bytes.items())
            if target - source > 1
        )

    def _take(self, taken: list[_Sent], layer: int) -> None:
        for tensor, source, _ in taken:
            edge = (max(source, 0), layer)
            if edge[0] < layer:
                self._bytes[edge] = self._bytes.get(edge, 0) + tensor.numel() * tensor.element_size()
