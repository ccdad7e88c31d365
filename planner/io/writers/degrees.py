"""A stage in the degrees of training frameworks, which divide all operators alike.

Each axis of a mesh has one role for all operators: `data` (samples), `context` (tokens, those of attention cores too)
or `tensor` (heads, widths and vocabularies, and between them tokens or nothing). Experts are divided over devices that
otherwise divide samples or tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from math import prod

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.operators import SAMPLE, TOKEN
from stagecut.planner.core.operators.parallelism import EXPERT
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, StageSharding, Strategy, WeightStorage
from stagecut.planner.core.plan import Stage

TENSOR_DIMS = frozenset({"head", "width", "vocabulary"})
MOST_OTHER_WEIGHTS = 0.01
"""Share of the weights that may be stored in another way: frameworks store norms and biases like the rest."""


class Role(StrEnum):
    """What an axis divides, in the order of ranks: those of the last vary fastest."""

    DATA = "data"
    EXPERT_DATA = "data with experts"
    CONTEXT = "context"
    EXPERT_CONTEXT = "context with experts"
    TENSOR = "tensor"
    SEQUENCE = "tensor with sequence"


_ROLES = {
    frozenset({SAMPLE}): Role.DATA,
    frozenset({SAMPLE, EXPERT}): Role.EXPERT_DATA,
    frozenset({TOKEN}): Role.CONTEXT,
    frozenset({TOKEN, EXPERT}): Role.EXPERT_CONTEXT,
    frozenset({"tensor"}): Role.SEQUENCE,
    frozenset({"tensor", TOKEN}): Role.SEQUENCE,
    frozenset({"tensor", WHOLE_LOOP}): Role.TENSOR,
}
"""Roles by everything that operators divide along an axis."""
_GRADIENTS_SUMMED = (Role.DATA, Role.EXPERT_DATA, Role.CONTEXT, Role.EXPERT_CONTEXT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """How the devices of a replica divide every layer of a stage."""

    data: int = 1
    context: int = 1
    tensor: int = 1
    sequence: bool = False
    """Whether the devices of tensor parallelism divide tokens where they divide nothing else."""
    experts: int = 1
    storage: WeightStorage = WeightStorage.REPLICATED
    """Of weights whose gradients are summed over the devices of `data` and `context`."""

    @property
    def num_summed(self) -> int:
        """Devices of a replica that sum their gradients."""
        return self.data * self.context

    def __str__(self) -> str:
        sizes = [f"{name} {getattr(self, name)}" for name in ("data", "context", "tensor", "experts")]
        shown = [size for size in sizes if not size.endswith(" 1")] + ["sequence"] * self.sequence
        stored = [] if self.storage is WeightStorage.REPLICATED else [f"{self.storage} in parts"]
        return ", ".join(shown + stored) or "one device"


def degrees_of(model: ModelProfile, stage: Stage) -> Degrees:
    """The degrees of a stage; raises an UnsupportedError with the reason if there are none for it."""
    if stage.sharding is None:
        return Degrees(tensor=stage.tensor_parallel, sequence=stage.tensor_parallel > 1)
    found = _Strategies(model, stage, stage.sharding)
    return Degrees(
        data=found.degree(Role.DATA, Role.EXPERT_DATA),
        context=found.degree(Role.CONTEXT, Role.EXPERT_CONTEXT),
        tensor=found.degree(Role.TENSOR, Role.SEQUENCE),
        sequence=Role.SEQUENCE in found.roles,
        experts=found.degree(Role.EXPERT_DATA, Role.EXPERT_CONTEXT),
        storage=found.storage(),
    )


def ranked_devices(model: ModelProfile, stage: Stage) -> tuple[str, ...]:
    """The devices of a stage in the order of ranks: tensor parallelism fastest, then context, data, replicas."""
    if stage.sharding is None:
        return stage.devices
    roles, mesh = _Strategies(model, stage, stage.sharding).roles, stage.sharding.mesh
    order = sorted(range(len(mesh)), key=lambda axis: list(Role).index(roles[axis]))
    strides = [prod(mesh[axis + 1 :]) for axis in range(len(mesh))]
    places = (zip(order, place, strict=True) for place in product(*(range(mesh[axis]) for axis in order)))
    offsets = [sum(strides[axis] * index for axis, index in place) for place in places]
    firsts = range(0, len(stage.devices), stage.tensor_parallel)
    return tuple(stage.devices[first + offset] for first in firsts for offset in offsets)


class _Strategies:
    """The operators of a stage with their strategies, and the roles of the axes."""

    def __init__(self, model: ModelProfile, stage: Stage, sharding: StageSharding) -> None:
        layers = model.layers[stage.start : stage.stop]
        self._mesh = sharding.mesh
        self._all = [
            (f"operator {operator.name!r} of layer {layer.name!r}", operator, strategy)
            for layer, own in zip(layers, sharding.layers, strict=True)
            for operator, strategy in zip(operators_of(layer), own.operators, strict=True)
        ]
        self.roles = tuple(self._role(axis) for axis in range(len(sharding.mesh)))
        if Role.EXPERT_DATA in self.roles and Role.CONTEXT in self.roles:
            raise UnsupportedError(
                "experts are divided over devices of data, but not over those of context parallelism"
            )

    def degree(self, *wanted: Role) -> int:
        """Devices over all axes of these roles."""
        return prod(size for size, role in zip(self._mesh, self.roles, strict=True) if role in wanted)

    def storage(self) -> WeightStorage:
        """How the weights are stored whose gradients are summed over data and context axes."""
        num_bytes = dict.fromkeys(WeightStorage, 0.0)
        for _, operator, strategy in self._all:
            for weight in operator.weights:
                if any(split not in weight.dims for split in self._summed(strategy)):
                    num_bytes[strategy.storage] += weight.num_bytes
        most, total = max(num_bytes, key=lambda storage: num_bytes[storage]), sum(num_bytes.values())
        if total - num_bytes[most] > MOST_OTHER_WEIGHTS * total:
            shown = ", ".join(f"{size / total:.0%} {storage}" for storage, size in num_bytes.items() if size)
            raise UnsupportedError(f"weights must be stored alike, got {shown}")
        return most

    def _summed(self, strategy: Strategy) -> Iterator[str]:
        """What is divided along the axes over which frameworks sum gradients."""
        for role, split in zip(self.roles, strategy.splits, strict=True):
            if role in _GRADIENTS_SUMMED and split != WHOLE_LOOP:
                yield split

    def _role(self, axis: int) -> Role:
        divided = {_kind(strategy.splits[axis]): name for name, _, strategy in self._all}
        role = _ROLES.get(frozenset(divided))
        if role is None:
            shown = "; ".join(f"{name} by {_WORDS.get(kind, kind)}" for kind, name in divided.items())
            raise UnsupportedError(f"an axis of {self._mesh[axis]} devices has no single meaning: {shown}")
        for name, operator, strategy in self._all:
            if role in (Role.TENSOR, Role.SEQUENCE):
                self._require(strategy, axis, TENSOR_DIMS & {own.dim for own in operator.splits}, name)
            if role in (Role.EXPERT_DATA, Role.EXPERT_CONTEXT) and operator.kind == "experts":
                self._require(strategy, axis, {EXPERT}, name)
        return role

    def _require(self, strategy: Strategy, axis: int, dims: frozenset[str] | set[str], name: str) -> None:
        if dims and strategy.splits[axis] not in dims:
            split = strategy.splits[axis]
            shown = f"by {_WORDS.get(split, split)}, not by {' or '.join(sorted(dims))}"
            raise UnsupportedError(
                f"{name} is divided {shown}, unlike others on that axis of {self._mesh[axis]} devices"
            )


_WORDS = {WHOLE_LOOP: "nothing", PARTIAL_SUMS: "partial sums"}


def _kind(split: str) -> str:
    return "tensor" if split in TENSOR_DIMS else split
