"""How people divide models by hand: every axis of the mesh has a role, the same for all layers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators.operators import HIDDEN, SAMPLE, TOKEN, Operator
from stagecut.planner.core.operators.strategy import WHOLE_LOOP, Strategy, WeightStorage
from stagecut.planner.sharding.strategies import strategies
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.options import Allowed


class Role(Enum):
    """What an axis of the mesh divides."""

    DATA = "data"
    """Samples."""
    TENSOR = "tensor"
    """Heads, widths and vocabularies, columns of the first product and rows of the second (Megatron-LM, arXiv
    1909.08053), and tokens between them (Korthikanti et al., MLSys 2023); channels of convolutions."""
    INNER = "inner"
    """Of a product of a transformer, the hidden dimension, the other one of its weight (2-D tensor parallelism, as
    in GSPMD, arXiv 2105.04663, section 3.2); tokens elsewhere."""
    WEIRD = "one weird trick"
    """Samples in convolutions, outputs of fully connected layers (Krizhevsky, arXiv 1404.5997)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Expert:
    """A scheme on a mesh."""

    name: str
    roles: tuple[Role, ...]
    """Of every axis."""
    storage: WeightStorage = WeightStorage.REPLICATED
    """Where gradients are summed over some axis."""

    def allowed(self, case: ShardingCase) -> Allowed:
        """The one strategy of every operator."""

        def one(number: int, operator: Operator) -> Sequence[Strategy]:
            legal = strategies(operator, case.mesh.sizes, samples=case.micro_batch)
            wishes = [_wishes(role, case.model.layers[number], operator) for role in self.roles]
            return (_nearest(wishes, self.storage, legal),)

        return one


_OUTPUTS = ("width", "class")
"""Of fully connected layers."""
_PARALLEL = ("head", *_OUTPUTS, "vocabulary", "channel", "feature")


def experts_on(case: ShardingCase) -> Iterator[Expert]:
    """The schemes for a mesh, outer axes dividing samples; the one weird trick is for models with convolutions."""
    num_axes = len(case.mesh.sizes)
    data = (Role.DATA,) * num_axes
    yield Expert(name="data parallel", roles=data)
    yield Expert(name="ZeRO-1", roles=data, storage=WeightStorage.OPTIMIZER)
    yield Expert(name="FSDP", roles=data, storage=WeightStorage.WEIGHTS)
    for outer in range(num_axes):
        roles = data[:outer] + (Role.TENSOR,) * (num_axes - outer)
        name = "Megatron" if outer else "tensor parallel"
        yield Expert(name=name, roles=roles)
        if outer:
            yield Expert(name=f"{name}, ZeRO-1", roles=roles, storage=WeightStorage.OPTIMIZER)
    if num_axes >= 2:
        yield Expert(name="2-D tensor parallel", roles=(*data[2:], Role.INNER, Role.TENSOR))
    if any(_has_convolution(layer) for layer in case.model.layers):
        for outer in range(num_axes):
            roles = data[:outer] + (Role.WEIRD,) * (num_axes - outer)
            yield Expert(name="one weird trick", roles=roles)


def _has_convolution(layer: Layer) -> bool:
    return any(operator.kind == "convolution" for operator in layer.operators)


def _wishes(role: Role, layer: Layer, operator: Operator) -> tuple[str, ...]:
    """Dimensions to divide along an axis, best first."""
    if role is Role.DATA:
        return (SAMPLE,)
    if role is Role.TENSOR:
        return (*_PARALLEL, TOKEN)
    if role is Role.INNER:
        return (HIDDEN, TOKEN) if operator.weights else (TOKEN,)
    return (SAMPLE,) if _has_convolution(layer) else _OUTPUTS


def _nearest(wishes: Sequence[tuple[str, ...]], storage: WeightStorage, legal: Sequence[Strategy]) -> Strategy:
    """The legal strategy that meets most wishes, those of the last axis first; an axis without one computes alike."""

    def distance(strategy: Strategy) -> tuple[int, ...]:
        far = (_rank(split, own) for split, own in zip(reversed(strategy.splits), reversed(wishes), strict=True))
        return (*far, int(strategy.storage is not storage), int(strategy.storage is not WeightStorage.REPLICATED))

    return min(legal, key=distance)


def _rank(split: str, wishes: tuple[str, ...]) -> int:
    if split in wishes:
        return wishes.index(split)
    return len(wishes) + (split != WHOLE_LOOP)
