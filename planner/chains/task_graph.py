"""A model as a graph of layers, which is how other planners' profiles hold it."""

from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, pairwise

from stagecut.planner.chains.joining import seconds_of
from stagecut.planner.core.messages.checks import require, require_non_negative
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer
from stagecut.planner.core.numerics.tolerances import CANCELLED_SUM


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What a node hands to others; it is alive until the last of them has run."""

    source: int
    users: tuple[int, ...]
    num_bytes: float
    """Per sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Parameters that several nodes use: the first user in the chain owns them, the others hold a copy."""

    users: tuple[int, ...]
    num_bytes: float


@dataclass(frozen=True, kw_only=True)
class TaskGraph:
    """Nodes and the tensors between them.

    Raises
    ------
    BadInputError
        If there is no node, a tensor names a node that does not exist, or the graph has a cycle.
    """

    name: str
    nodes: tuple[Layer, ...]
    """Layers without outputs of their own: `tensors` holds what they hand on."""
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
        if cycle := self._cycle():
            names = " -> ".join(self.nodes[node].name for node in cycle)
            raise BadInputError(f"{owner}: must be acyclic, got the cycle {names}")

    @cached_property
    def seconds(self) -> tuple[float, ...]:
        """Forward and backward of each node, 0 where not measured; see :func:`seconds_of`."""
        return tuple(seconds_of(node) or 0.0 for node in self.nodes)

    @cached_property
    def successors(self) -> tuple[tuple[int, ...], ...]:
        """Distinct users of each node's tensors."""
        found: list[dict[int, None]] = [{} for _ in self.nodes]
        for tensor in self.tensors:
            found[tensor.source].update(dict.fromkeys(tensor.users))
        return tuple(map(tuple, found))

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """Distinct nodes whose tensors each node uses."""
        found: list[list[int]] = [[] for _ in self.nodes]
        for node, users in enumerate(self.successors):
            for user in users:
                found[user].append(node)
        return tuple(map(tuple, found))

    @property
    def num_components(self) -> int:
        """Connected components, joined by tensors and shared weights."""
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
        return self.seconds[node] == 0 and self.nodes[node].params_bytes == 0

    def cut_bytes(self, order: tuple[int, ...]) -> list[float]:
        """Bytes per sample that cross each of the n + 1 boundaries of the n nodes in this order.

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

    def _cycle(self) -> list[int]:
        """Nodes of some cycle; empty if there is none."""
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
    """A cycle among nodes that each have a predecessor among them, the first node repeated at the end."""
    walked = [min(left)]
    while True:
        before = next(node for node in predecessors[walked[-1]] if node in left)
        if before in walked:
            return [before, *reversed(walked[walked.index(before) :])]
        walked.append(before)


def _running_sums(steps: list[float]) -> list[float]:
    """Running sums, in which what rounding leaves of amounts that cancel counts as zero."""
    total, sums = 0.0, []
    largest = max(map(abs, steps), default=0.0)
    for step in steps:
        total += step
        sums.append(total if abs(total) > CANCELLED_SUM * largest else 0.0)
    return sums
