"""Weights of a sharded layer: where a rank holds its part, and how gradients of it come together."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Placement, distribute_tensor
from torch.distributed.tensor import Replicate as Replicated
from torch.distributed.tensor import Shard as Sharded
from torch.nn import functional

from stagecut.executor.sharding import moving
from stagecut.executor.sharding.place import MeshPlace
from stagecut.planner.core.operators.operators import Weight
from stagecut.planner.core.operators.strategy import Strategy, WeightStorage
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.placements import PARTIAL, Placements, Shard
from stagecut.planner.sharding.strategies import weight_gradient_placements, weight_placements


@dataclass(frozen=True, slots=True, kw_only=True)
class Division:
    """How a weight is divided for use, over which axes its gradients are summed, and what is held in parts."""

    placements: Placements
    summed: tuple[int, ...]
    """Axes, in the order in which gradients are scattered: those inside hosts first, and the innermost of them."""
    storage: WeightStorage

    @classmethod
    def of(cls, dims: tuple[str, ...], strategy: Strategy, mesh: Mesh) -> "Division":
        """That of a weight with these dimensions."""
        weight = Weight(name="", dims=dims, num_bytes=0.0)
        gradients = weight_gradient_placements(weight, strategy.splits)
        inwards = reversed([axis for axis, own in enumerate(gradients) if own is PARTIAL])
        summed = tuple(sorted(inwards, key=lambda axis: mesh.axes[axis].between_hosts))
        return cls(
            placements=weight_placements(weight, strategy.splits),
            summed=summed,
            storage=strategy.storage if summed else WeightStorage.REPLICATED,
        )


@dataclass(kw_only=True, eq=False)
class HeldWeight:
    """A weight on one rank.

    What is held in parts is the parameter itself: optimizer state and checkpoints follow from it. Under ZeRO-1 and
    ZeRO-2 a whole copy for use is gathered at the start of every step.
    """

    parameter: nn.Parameter
    """A DTensor."""
    division: Division
    place: MeshPlace
    stored_dim: int | None
    """Dimension along which the parameter is divided over the summed axes too; None: it is not."""
    whole: Tensor | None = None
    """The copy for use."""
    gradient: Tensor | None = field(default=None, repr=False)
    """Sum over the micro-batches so far, still to be finished."""
    tied_gradients: list[Tensor] = field(default_factory=list, repr=False)
    """Finished gradients of tied uses, divided like this one's use."""

    @classmethod
    def of(cls, parameter: nn.Parameter, division: Division, place: MeshPlace) -> "HeldWeight":
        """Divide a parameter that every rank has whole."""
        stored_dim = _stored_dim(parameter, division, place)
        axes = range(len(place.sizes))
        # in a DTensor axes divide a dimension from left to right: those over which parts are gathered come last
        order = (*(axis for axis in axes if axis not in division.summed), *division.summed)
        placements = [_torch_placement(division, axis, stored_dim) for axis in order]
        tensor = distribute_tensor(parameter.detach(), place.device_mesh(order), placements, src_data_rank=None)
        own = nn.Parameter(tensor, requires_grad=parameter.requires_grad)
        return cls(parameter=own, division=division, place=place, stored_dim=stored_dim)

    @property
    def is_gathered_on_use(self) -> bool:
        """Whether it is whole only while it is used."""
        return self.stored_dim is not None and self.division.storage is WeightStorage.WEIGHTS

    def refresh(self) -> None:
        """Before a step: gather what the optimizer has updated in parts, unless that is done on every use."""
        self.gradient = None
        self.tied_gradients = []
        if self.stored_dim is not None and not self.is_gathered_on_use:
            self.whole = self._gathered(self._held(), self.stored_dim)

    def for_use(self) -> Tensor:
        """The rank's part of the weight as the operator needs it."""
        if self.stored_dim is not None and self.division.storage is WeightStorage.WEIGHTS:
            return self._gathered(self._held(), self.stored_dim)
        return self._held() if self.whole is None else self.whole

    def add(self, gradient: Tensor) -> None:
        """Take the gradient of one backward; it is scattered if gradients are held in parts."""
        if self._is_scattered:
            gradient = self._over_axes(gradient, self._reduced)
        self.gradient = gradient.clone() if self.gradient is None else self.gradient.add_(gradient)

    def part(self) -> Tensor:
        """After the last backward: of the sum over the ranks, what this one hands to the copies of the stage to sum."""
        gradient = self.gradient
        if gradient is None:  # no sample has reached it
            gradient = torch.zeros_like(self._held() if self._is_scattered or self.whole is None else self.whole)
        part = gradient if self._is_scattered else self._over_axes(self._in_row(gradient), self._reduced)
        for tied in self.tied_gradients:
            part = part + self._over_axes(self._in_row(tied), self._own_chunk)
        self.gradient, self.tied_gradients = None, []
        return part

    def complete(self, part: Tensor) -> None:
        """Hand the gradient to the parameter, once the part of it has been summed."""
        if self.stored_dim is None and self.division.summed:
            like = self._held()
            part = self._gathered(part, 0)[: like.numel()].view_as(like)
        self.parameter.grad = self._like_parameter(part)

    @property
    def _is_scattered(self) -> bool:
        """Whether gradients are scattered in every backward."""
        return self.stored_dim is not None and self.division.storage is not WeightStorage.OPTIMIZER

    def _in_row(self, gradient: Tensor) -> Tensor:
        """A gradient that can be scattered: of a weight held whole, its elements in a row, filled up with zeros."""
        if self.stored_dim is not None or not self.division.summed:
            return gradient
        shards = math.prod(self.place.sizes[axis] for axis in self.division.summed)
        return functional.pad(gradient.reshape(-1), (0, -gradient.numel() % shards))

    def _over_axes(self, gradient: Tensor, scatter: Callable[[Tensor, int, int], Tensor]) -> Tensor:
        for axis in self.division.summed:
            gradient = scatter(gradient, self.stored_dim or 0, axis)
        return gradient

    def _own_chunk(self, gradient: Tensor, dim: int, axis: int) -> Tensor:
        return gradient.chunk(self.place.sizes[axis], dim)[self.place.coordinate(axis)]

    def _reduced(self, gradient: Tensor, dim: int, axis: int) -> Tensor:
        return moving.reduce_scatter(gradient, dim, self.place.groups[axis])

    def _held(self) -> Tensor:
        return cast(DTensor, self.parameter.detach()).to_local()

    def _gathered(self, part: Tensor, dim: int) -> Tensor:
        for axis in reversed(self.division.summed):
            part = moving.all_gather(part, dim, self.place.groups[axis])
        return part

    def _like_parameter(self, gradient: Tensor) -> DTensor:
        like = cast(DTensor, self.parameter.detach())
        return DTensor.from_local(
            gradient, like.device_mesh, like.placements, run_check=False, shape=like.shape, stride=like.stride()
        )


@dataclass(kw_only=True, eq=False)
class TiedUse:
    """Another use of a weight on the same rank, divided in its own way."""

    owner: HeldWeight
    division: Division
    gradient: Tensor | None = field(default=None, repr=False)

    @property
    def parameter(self) -> nn.Parameter:
        """The owner's."""
        return self.owner.parameter

    @property
    def is_gathered_on_use(self) -> bool:
        """Whether it is whole only while it is used."""
        return self.owner.is_gathered_on_use

    def refresh(self) -> None:
        """Before a step."""
        self.gradient = None

    def for_use(self) -> Tensor:
        """The rank's part of the weight as this operator needs it."""
        return self._converted(self.owner.for_use(), self.owner.division.placements, self.division.placements)

    def add(self, gradient: Tensor) -> None:
        """Take the gradient of one backward."""
        if (self.division.placements, self.division.summed) == (
            self.owner.division.placements,
            self.owner.division.summed,
        ):
            self.owner.add(gradient)
        else:
            self.gradient = gradient.clone() if self.gradient is None else self.gradient.add_(gradient)

    def finish(self) -> None:
        """After the last backward: sum over the ranks, and hand the gradient to the owner."""
        gradient = self.gradient
        if gradient is not None:
            for axis in self.division.summed:
                gradient = moving.all_reduce(gradient, self.owner.place.groups[axis])
            ends = self.division.placements, self.owner.division.placements
            self.owner.tied_gradients.append(self._converted(gradient, *ends))
        self.gradient = None

    def _converted(self, tensor: Tensor, source: Placements, target: Placements) -> Tensor:
        if source == target:
            return tensor
        like, place = self.parameter, self.owner.place
        mesh = place.device_mesh(tuple(range(len(place.sizes))))
        shared = DTensor.from_local(
            tensor, mesh, _torch_placements(source), run_check=False, shape=like.shape, stride=like.stride()
        )
        whole = shared.redistribute(placements=[Replicated()] * len(source))
        return whole.redistribute(placements=_torch_placements(target)).to_local()


Use = HeldWeight | TiedUse
"""A weight as an operator uses it."""


def _stored_dim(parameter: Tensor, division: Division, place: MeshPlace) -> int | None:
    """The first dimension that can be divided evenly; a weight without one is held whole."""
    if division.storage is WeightStorage.REPLICATED:
        return None
    shards = math.prod(place.sizes[axis] for axis in division.summed)
    for dim, size in enumerate(parameter.shape):
        if size % (shards * _num_parts(division.placements, dim, place)) == 0:
            return dim
    return None


def _num_parts(placements: Placements, dim: int, place: MeshPlace) -> int:
    return math.prod(size for size, own in zip(place.sizes, placements, strict=True) if own == Shard(dim))


def _torch_placements(placements: Placements) -> list[Placement]:
    return [Sharded(own.dim) if isinstance(own, Shard) else Replicated() for own in placements]


def _torch_placement(division: Division, axis: int, stored_dim: int | None) -> Placement:
    own = division.placements[axis]
    if isinstance(own, Shard):
        return Sharded(own.dim)
    return Sharded(stored_dim) if axis in division.summed and stored_dim is not None else Replicated()
