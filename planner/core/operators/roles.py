"""What training frameworks divide along an axis of a mesh: one thing, by the same rule for all operators.

Each axis has one role: `data` (samples), `context` (tokens, those of attention cores too) or `tensor` (heads, widths
and vocabularies, and between them tokens or nothing). Experts are divided over devices that otherwise divide samples or
tokens.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import permutations
from math import isqrt, prod

from stagecut.planner.core.operators.operators import SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.parallelism import EXPERT, STORED, Parallelism
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, Strategy, WeightStorage

TENSOR_DIMS = frozenset({"head", "width", "vocabulary"})
EXPERTS = "experts"
"""Kind of the operators that experts can divide."""


class Role(StrEnum):
    """What an axis divides, in the order of ranks: those of the last vary fastest."""

    DATA = "data"
    EXPERT_DATA = "data with experts"
    CONTEXT = "context"
    EXPERT_CONTEXT = "context with experts"
    TENSOR = "tensor"
    SEQUENCE = "tensor with sequence"


WITH_EXPERTS = frozenset({Role.EXPERT_DATA, Role.EXPERT_CONTEXT})
GRADIENTS_SUMMED = frozenset({Role.DATA, Role.CONTEXT, *WITH_EXPERTS})
"""Roles over whose axes gradients are summed."""
_OTHERWISE = {
    Role.DATA: SAMPLE,
    Role.EXPERT_DATA: SAMPLE,
    Role.CONTEXT: TOKEN,
    Role.EXPERT_CONTEXT: TOKEN,
    Role.TENSOR: WHOLE_LOOP,
    Role.SEQUENCE: TOKEN,
}
"""What an axis divides in operators that have nothing else for its role."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshRoles:
    """A mesh with a role for each axis: one strategy for every operator, or a few where several dimensions do."""

    sizes: tuple[int, ...]
    roles: tuple[Role, ...]
    storage: WeightStorage = WeightStorage.REPLICATED

    @property
    def degrees(self) -> Degrees:
        """Devices over all axes of one meaning."""
        return Degrees(
            data=self._over(Role.DATA, Role.EXPERT_DATA),
            context=self._over(Role.CONTEXT, Role.EXPERT_CONTEXT),
            tensor=self._over(Role.TENSOR, Role.SEQUENCE),
            sequence=Role.SEQUENCE in self.roles,
            experts=self._over(*WITH_EXPERTS),
            storage=self.storage,
        )

    def _over(self, *wanted: Role) -> int:
        return prod(size for size, role in zip(self.sizes, self.roles, strict=True) if role in wanted)

    def allows(self, operator: Operator, strategy: Strategy) -> bool:
        """Whether a strategy divides and stores what it should."""
        pairs = list(zip(self.roles, strategy.splits, strict=True))
        if any(split not in splits_of(role, operator) for role, split in pairs):
            return False
        over = [split for role, split in pairs if role in GRADIENTS_SUMMED and split != WHOLE_LOOP]
        is_summed = any(split not in weight.dims for weight in operator.weights for split in over)
        return strategy.storage is (self.storage if is_summed else WeightStorage.REPLICATED)


def of_tensor_parallelism(degree: int) -> MeshRoles:
    """The roles in stages that are divided by tensor parallelism alike: sequence parallelism goes with it."""
    return MeshRoles(sizes=(degree,), roles=(Role.SEQUENCE,)) if degree > 1 else MeshRoles(sizes=(), roles=())


def splits_of(role: Role, operator: Operator) -> frozenset[str]:
    """What an axis of a role may divide of an operator; where several dimensions are left, any of them."""
    dims = {split.dim for split in operator.splits}
    if role in (Role.TENSOR, Role.SEQUENCE) and (own := TENSOR_DIMS & dims):
        return own
    if role in WITH_EXPERTS and EXPERT in dims:  # what brings samples to experts may divide either
        return frozenset({EXPERT} if operator.kind == EXPERTS else {EXPERT, _OTHERWISE[role]})
    return frozenset({_OTHERWISE[role]})


def meshes_with_roles(degree: int, *, kinds: Collection[Parallelism]) -> Iterator[MeshRoles]:
    """Every way to give roles to one or two axes of so many devices, and to store weights, in kinds of parallelism.

    Each role is given once, an axis of tensor parallelism too. Samples alone are not divided with weights stored whole:
    that is what replicas do.
    """
    stored = [storage for storage, kind in STORED.items() if kind in kinds]
    splits = [(degree,), *((own, degree // own) for own in range(2, isqrt(degree) + 1) if degree % own == 0)]
    for sizes in splits:
        for roles in permutations(Role, len(sizes)):
            in_order = sizes[0] < sizes[-1] or list(roles) == sorted(roles, key=list(Role).index)
            if not in_order or {Role.TENSOR, Role.SEQUENCE} <= {*roles} or {Role.EXPERT_DATA, Role.CONTEXT} <= {*roles}:
                continue
            if Role.DATA not in roles:
                yield MeshRoles(sizes=sizes, roles=roles)
            if not GRADIENTS_SUMMED.isdisjoint(roles):
                yield from (MeshRoles(sizes=sizes, roles=roles, storage=storage) for storage in stored)
