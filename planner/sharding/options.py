"""The strategies of one operator on a mesh as columns: what each costs, and where it takes and leaves tensors."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import lru_cache
from itertools import pairwise

import numpy as np

from stagecut.planner.core.job import Optimizer
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.operators.operators import SAMPLE, Operator
from stagecut.planner.core.operators.parallelism import Parallelism, allows
from stagecut.planner.core.operators.roles import MeshRoles
from stagecut.planner.core.operators.strategy import Strategy
from stagecut.planner.sharding.conversion_tables import number_of
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.operator_costs import OperatorCosts, operator_costs
from stagecut.planner.sharding.placements import Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    strategies,
)

NUM_DIMS = 4
"""Most dimensions of a tensor."""


class Column(IntEnum):
    """Costs of an operator on each device."""

    PART = 0
    """Of its computation."""
    FORWARD_S = 1
    """Collectives of weights in a forward."""
    BACKWARD_S = 2
    SYNC_S = 3
    """Collectives of weights once per iteration."""
    NUM_SUMMED = 4
    """Parameters whose gradients are still to be summed over replicas and pipelines."""
    NUM_UPDATED = 5
    WEIGHT_BYTES = 6
    GRADIENT_BYTES = 7
    STATE_BYTES = 8
    """Optimizer state, before replicas and pipelines divide it."""
    SAVED_BYTES = 9
    """Per sample of the mesh."""
    WORKING_BYTES = 10
    """Per sample of the mesh."""
    GATHERED_BYTES = 11
    """Further working bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ends:
    """Numbers of the placements of one tensor at an operator, see `conversion_tables`; shape (n,) each."""

    placements: Ints
    gradients: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The n strategies of an operator."""

    strategies: tuple[Strategy, ...]
    sample_parts: Ints
    """What has to divide the samples, shape (n,)."""
    groups: Ints
    """Equal where only the storage of weights differs, rising, shape (n,)."""
    costs: Floats
    """Shape (n, columns)."""
    takes: tuple[Ends, ...]
    """For each of its inputs."""
    makes: tuple[Ends, ...]
    """For each of its outputs."""

    def take(self, chosen: Ints) -> "Options":
        """The chosen strategies."""
        return replace(
            self,
            strategies=tuple(self.strategies[index] for index in chosen),
            sample_parts=self.sample_parts[chosen],
            groups=self.groups[chosen],
            costs=self.costs[chosen],
            takes=tuple(_chosen(ends, chosen) for ends in self.takes),
            makes=tuple(_chosen(ends, chosen) for ends in self.makes),
        )


def _chosen(ends: Ends, chosen: Ints) -> Ends:
    return Ends(placements=ends.placements[chosen], gradients=ends.gradients[chosen])


def allowed_strategies(
    operator: Operator, sizes: tuple[int, ...], *, kinds: tuple[Parallelism, ...], roles: MeshRoles | None
) -> Iterator[Strategy]:
    """The strategies on a mesh of these sizes that need no other kinds of parallelism and keep to the roles, if any."""
    for strategy in strategies(operator, sizes, samples=math.prod(sizes)):
        if allows(kinds, operator, strategy) and (roles is None or roles.allows(operator, strategy)):
            yield strategy


@lru_cache(maxsize=1 << 12)
def options_of(
    operator: Operator,
    mesh: Mesh,
    samples: int,
    *,
    optimizer: Optimizer,
    element_bytes: int,
    kinds: tuple[Parallelism, ...],
    roles: MeshRoles | None = None,
) -> Options:
    """The strategies for micro-batches of so many samples that need no other kinds of parallelism.

    With roles, only those in which each axis has its role; at least one has to be left.
    """
    every = _options(operator, mesh, optimizer, element_bytes, kinds, roles)
    return every.take(np.flatnonzero(samples % every.sample_parts == 0))


@lru_cache(maxsize=1 << 12)
def _options(
    operator: Operator,
    mesh: Mesh,
    optimizer: Optimizer,
    element_bytes: int,
    kinds: tuple[Parallelism, ...],
    roles: MeshRoles | None,
) -> Options:
    found = tuple(allowed_strategies(operator, mesh.sizes, kinds=kinds, roles=roles))
    costs = [
        operator_costs(operator, strategy, mesh, samples=1, optimizer=optimizer, element_bytes=element_bytes)
        for strategy in found
    ]
    splits = [strategy.splits for strategy in found]
    return Options(
        strategies=found,
        sample_parts=np.array([_sample_parts(own, mesh) for own in splits]),
        groups=np.cumsum([before != after for before, after in pairwise((None, *splits))]),
        costs=np.array([_row(cost) for cost in costs]),
        takes=tuple(
            _ends(
                [input_placements(port, own) for own in splits],
                [input_gradient_placements(port, own) for own in splits],
            )
            for port in operator.inputs
        ),
        makes=tuple(
            _ends(
                [output_placements(tensor, own) for own in splits],
                [output_gradient_placements(tensor, own) for own in splits],
            )
            for tensor in operator.outputs
        ),
    )


def _sample_parts(splits: tuple[str, ...], mesh: Mesh) -> int:
    return math.prod(size for size, own in zip(mesh.sizes, splits, strict=True) if own == SAMPLE)


def _ends(placements: list[Placements], gradients: list[Placements]) -> Ends:
    return Ends(
        placements=np.array([number_of(each, NUM_DIMS) for each in placements]),
        gradients=np.array([number_of(each, NUM_DIMS) for each in gradients]),
    )


def _row(costs: OperatorCosts) -> list[float]:
    weights = costs.weights
    row = {
        Column.PART: 1 / costs.parts,
        Column.FORWARD_S: weights.forward.seconds,
        Column.BACKWARD_S: weights.backward.seconds,
        Column.SYNC_S: weights.sync.seconds,
        Column.NUM_SUMMED: weights.num_summed,
        Column.NUM_UPDATED: weights.num_updated,
        Column.WEIGHT_BYTES: weights.weight_bytes,
        Column.GRADIENT_BYTES: weights.gradient_bytes,
        Column.STATE_BYTES: weights.optimizer_bytes,
        Column.SAVED_BYTES: costs.saved_bytes,
        Column.WORKING_BYTES: costs.working_bytes - weights.gathered_bytes,
        Column.GATHERED_BYTES: weights.gathered_bytes,
    }
    return [row[column] for column in Column]
