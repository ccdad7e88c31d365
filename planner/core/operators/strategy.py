"""How an operator, and a layer of them, is divided over the axes of a mesh."""

from dataclasses import dataclass
from enum import StrEnum

from stagecut.planner.core.messages.checks import require, require_count

WHOLE_LOOP = ""
"""Split of an axis whose devices all compute the same."""
PARTIAL_SUMS = "+"
"""Split of an axis whose devices compute with their own partial sums of the inputs."""


class WeightStorage(StrEnum):
    """What is sharded over the axes on which a weight is whole but its gradient is summed (ZeRO, SC 2020)."""

    REPLICATED = "replicated"
    """Nothing: gradients are all-reduced once per iteration."""
    OPTIMIZER = "optimizer"
    """The optimizer state (ZeRO-1): gradients are reduce-scattered, new weights all-gathered, once per iteration."""
    GRADIENTS = "gradients"
    """Gradients too (ZeRO-2): they are reduce-scattered in every backward."""
    WEIGHTS = "weights"
    """Weights too (ZeRO-3, FSDP): they are all-gathered in every forward and backward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """How one operator is divided."""

    splits: tuple[str, ...]
    """For each axis of the mesh: the dimension whose loop is divided, `WHOLE_LOOP` or `PARTIAL_SUMS`."""
    storage: WeightStorage = WeightStorage.REPLICATED


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerStrategy:
    """How the operators of a layer are divided, in their order."""

    operators: tuple[Strategy, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSharding:
    """How the devices of one replica of a stage divide its layers."""

    mesh: tuple[int, ...]
    """Devices along each axis; the last axis is the fastest in the order of the devices."""
    layers: tuple[LayerStrategy, ...]
    """One for each layer of the stage."""

    def __post_init__(self) -> None:
        for size in self.mesh:
            require_count("sharding", "mesh", size)
        for layer in self.layers:
            for strategy in layer.operators:
                rule = f"one per axis of the mesh {self.mesh}"
                require(len(strategy.splits) == len(self.mesh), "sharding", "splits", rule, strategy.splits)


MEMORY_PRICES = (0.0, 10.0)
"""What it may cost a stage to hold as many bytes as a device has, in times that its devices take for a micro-batch of
the whole model: a stage takes the sharding that is the cheapest at one of them. 0: the fastest."""
