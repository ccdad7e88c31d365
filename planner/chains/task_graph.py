"""A model as a graph of nodes, the way other planners' profiles hold it."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise

from stagecut.planner.core.checks import require, require_non_negative
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.model import TimeTable


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphNode:
    """A part of the model that is computed as a whole."""

    name: str
    kind: str = "layer"
    params_bytes: float = 0.0
    saved_bytes: float = 0.0
    """Kept from forward to backward, per sample."""
    times: tuple[TimeTable, ...] = ()
    tensor_parallel_bytes: float | None = None
    """As :attr:`planner.core.model.Layer.tensor_parallel_bytes`."""

    @property
    def seconds(self) -> float:
        """Forward and backward at the smallest size, the mean over device types."""
        alone = [table for table in self.times if table.tensor_parallel == 1]
        return sum(table.forward_s[0] + table.backward_s[0] for table in alone) / max(1, len(alone))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What a node hands to others; it lives until the last of them has run."""

    source: int
    users: tuple[int, ...]
    num_bytes: float
    """Per sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters that are no node's own: the first user in the chain owns them, further ones hold a copy."""

    users: tuple[int, ...]
    num_bytes: float


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Nodes and the tensors between them.

    Raises
    ------
    BadInputError
        If there is no node, a tensor names one that does not exist, or the nodes need each other in a circle.
    """

    name: str
    nodes: tuple[GraphNode, ...]
    tensors: tuple[Tensor, ...]
    weights: tuple[Weights, ...] = field(default=())

    def __post_init__(self) -> None:
        owner = f"graph {self.name!r}"
        require(len(self.nodes) > 0, owner, "nodes", "not empty", ())
        known = range(len(self.nodes))
        for tensor in self.tensors:
            require_non_negative(owner, "bytes of a tensor", tensor.num_bytes)
            for node in (tensor.source, *tensor.users):
                require(node in known, owner, "node of a tensor", f"from 0 to {len(self.nodes) - 1}", node)
        if circle := self._circle():
            names = " -> ".join(self.nodes[node].name for node in circle)
            raise BadInputError(f"{owner}: nodes must not need each other in a circle, got {names}")

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Users of each node's tensors, each once."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for tensor in self.tensors:
            found[tensor.source].update(dict.fromkeys(tensor.users))
        return tuple(map(tuple, found))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Nodes whose tensors each node uses, each once."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, users in enumerate(self.successors):
            for user in users:
                found[user].append(node)
        return tuple(map(tuple, found))

    @property
    def num_parts(self) -> int:
        """Parts of the graph that no tensor and no shared weights join."""
        joined = (*((tensor.source, *tensor.users) for tensor in self.tensors), *(own.users for own in self.weights))
        neighbours: list[list[int]] = [[] for _ in self.nodes]
        for first, second in chain.from_iterable(map(pairwise, joined)):
            neighbours[first].append(second)
            neighbours[second].append(first)
        count, left = 0, set(range(len(self.nodes)))
        while left:
            count, waiting = count + 1, [left.pop()]
            while waiting:
                found = left.intersection(neighbours[waiting.pop()])
                left -= found
                waiting.extend(found)
        return count

    def is_idle(self, node: int) -> bool:
        """Whether a node takes no time and has no weights: a reshape, an input, an addition too short to measure."""
        return self.nodes[node].seconds == 0 and self.nodes[node].params_bytes == 0

    def cut_bytes(self, order: tuple[int, ...]) -> list[float]:
        """Bytes per sample that cross each boundary of the nodes in this order, as many as nodes and one more.

        A tensor crosses every boundary between its source and its last user, once.
        """
        position = {node: index for index, node in enumerate(order)}
        steps = [0.0] * (len(order) + 1)
        for tensor in self.tensors:
            start = position[tensor.source]
            stop = max((position[user] for user in tensor.users), default=start)
            steps[start + 1] += tensor.num_bytes
            steps[stop + 1] -= tensor.num_bytes
        return _running_sums(steps)

    def _circle(self) -> list[int]:
        """Nodes of some circle, empty where there is none."""
        waiting = [len(before) for before in self.predecessors]
        ready = [node for node, count in enumerate(waiting) if count == 0]
        for node in ready:
            for user in self.successors[node]:
                waiting[user] -= 1
                if waiting[user] == 0:
                    ready.append(user)
        left = {node for node, count in enumerate(waiting) if count > 0}
        return _walk_back(left, self.predecessors) if left else []


def _walk_back(left: set[int], predecessors: tuple[tuple[int, ...], ...]) -> list[int]:
    """A circle among nodes each of which has a predecessor among them, first node repeated at the end."""
    walked = [min(left)]
    while True:
        before = next(node for node in predecessors[walked[-1]] if node in left)
        if before in walked:
            return [before, *reversed(walked[walked.index(before) :])]
        walked.append(before)


def _running_sums(steps: list[float]) -> list[float]:
    """Sums of the first steps; what rounding leaves of a sum of nothing is nothing."""
    total, sums = 0.0, []
    largest = max(map(abs, steps), default=0.0)
    for step in steps:
        total += step
        sums.append(total if abs(total) > 1e-12 * largest else 0.0)
    return sums
