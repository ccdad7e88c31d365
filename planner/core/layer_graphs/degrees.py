"""Stages in the terms of training frameworks: what each axis of their meshes divides, alike for all operators."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from math import prod

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.operators import SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.parallelism import EXPERT
from stagecut.planner.core.operators.roles import (
    GRADIENTS_SUMMED,
    TENSOR_DIMS,
    MeshRoles,
    Role,
    of_tensor_parallelism,
    splits_of,
)
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.core.plan import Stage

MOST_OTHER_WEIGHTS = 0.01
"""Share of the weights that may be stored in another way: frameworks store norms and biases like the rest."""
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
_WORDS = {WHOLE_LOOP: "nothing", PARTIAL_SUMS: "partial sums"}
_Divided = tuple[str, Operator, Strategy]
"""An operator in words, itself, and how it is divided."""


def roles_of_stages(model: ModelProfile, stages: Sequence[Stage]) -> tuple[MeshRoles, ...]:
    """The roles of the axes in each stage.

    Axes of stages with one mesh have one role where that is possible: a stage without experts divides samples where
    others divide experts, too. Raises an UnsupportedError with every reason why a stage has no roles.
    """
    found, reasons = list[MeshRoles](), list[str]()
    for index, stage in enumerate(stages):
        try:
            found.append(_roles_of(model, [stage]))
        except UnsupportedError as error:
            reasons += [f"stage {index}: {complaint}" for complaint in error.complaints]
    if reasons:
        raise UnsupportedError(*reasons)
    if len({own.sizes for own in found}) == 1 < len(set(found)):
        with suppress(UnsupportedError):
            return (_roles_of(model, stages),) * len(stages)
    return tuple(found)


def _roles_of(model: ModelProfile, stages: Sequence[Stage]) -> MeshRoles:
    """The roles in stages with one mesh."""
    if stages[0].sharding is None:
        return of_tensor_parallelism(stages[0].tensor_parallel)
    sizes = stages[0].sharding.mesh
    divided = [each for stage in stages for each in _divided(model, stage)]
    roles = tuple(_role(divided, axis, size) for axis, size in enumerate(sizes))
    if Role.EXPERT_DATA in roles and Role.CONTEXT in roles:
        raise UnsupportedError("experts are divided over devices of data, but not over those of context parallelism")
    return MeshRoles(sizes=sizes, roles=roles, storage=_storage(divided, roles))


def ranked_devices(roles: MeshRoles, stage: Stage) -> tuple[str, ...]:
    """The devices of a stage in the order of ranks: tensor parallelism fastest, then context, data, replicas."""
    mesh = roles.sizes
    order = sorted(range(len(mesh)), key=lambda axis: list(Role).index(roles.roles[axis]))
    strides = [prod(mesh[axis + 1 :]) for axis in range(len(mesh))]
    places = (zip(order, place, strict=True) for place in product(*(range(mesh[axis]) for axis in order)))
    offsets = [sum(strides[axis] * index for axis, index in place) for place in places]
    firsts = range(0, len(stage.devices), stage.tensor_parallel)
    return tuple(stage.devices[first + offset] for first in firsts for offset in offsets)


def _divided(model: ModelProfile, stage: Stage) -> Iterator[_Divided]:
    if stage.sharding is not None:
        for layer, own in zip(model.layers[stage.start : stage.stop], stage.sharding.layers, strict=True):
            for operator, strategy in zip(operators_of(layer), own.operators, strict=True):
                yield f"operator {operator.name!r} of layer {layer.name!r}", operator, strategy


def _storage(divided: Iterable[_Divided], roles: Sequence[Role]) -> WeightStorage:
    """How the weights are stored whose gradients are summed over data and context axes."""
    num_bytes = dict.fromkeys(WeightStorage, 0.0)
    for _, operator, strategy in divided:
        pairs = zip(roles, strategy.splits, strict=True)
        over = [split for role, split in pairs if role in GRADIENTS_SUMMED and split != WHOLE_LOOP]
        for weight in operator.weights:
            if any(split not in weight.dims for split in over):
                num_bytes[strategy.storage] += weight.num_bytes
    most, total = max(num_bytes, key=lambda storage: num_bytes[storage]), sum(num_bytes.values())
    if total - num_bytes[most] > MOST_OTHER_WEIGHTS * total:
        shown = ", ".join(f"{size / total:.0%} {storage}" for storage, size in num_bytes.items() if size)
        raise UnsupportedError(f"weights must be stored alike, got {shown}")
    return most


def _role(divided: Iterable[_Divided], axis: int, size: int) -> Role:
    """What all operators divide along an axis."""
    kinds = {_kind(strategy.splits[axis]): name for name, _, strategy in divided}
    role = _ROLES.get(frozenset(kinds))
    if role is None:
        shown = "; ".join(f"{name} by {_WORDS.get(kind, kind)}" for kind, name in kinds.items())
        raise UnsupportedError(f"an axis of {size} devices has no single meaning: {shown}")
    for name, operator, strategy in divided:
        own, split = splits_of(role, operator), strategy.splits[axis]
        if split not in own:
            shown = f"by {_WORDS.get(split, split)}, not by {' or '.join(sorted(own))}"
            raise UnsupportedError(f"{name} is divided {shown}, unlike others on that axis of {size} devices")
    return role


def _kind(split: str) -> str:
    return "tensor" if split in TENSOR_DIMS else split
