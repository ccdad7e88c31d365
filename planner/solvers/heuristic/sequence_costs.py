"""Stages on a given sequence of device groups, costed for many cuts of the layers at once."""

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.placement import DeviceGroup
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import warmup_depths
from stagecut.planner.core.share import Share
from stagecut.planner.cost.links import route_between, sync_route
from stagecut.planner.network.arrangement import Arrangement, arrange
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.heuristic.leeway import leeways
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables, first_fit


class WaysHome(NamedTuple):
    """Numbers of the links that a stage's last gradient and its all-reduce take, -1 for none; shape (S, 2) each."""

    gradient: Ints
    all_reduce: Ints


@dataclass(frozen=True, slots=True, kw_only=True)
class CutCosts:
    """Costs of n cuts into S stages each; infinite where a stage is empty or does not fit in memory."""

    forward_s: Floats
    """Shape (n, S)."""
    backward_s: Floats
    """Recomputation included, shape (n, S)."""
    tail_s: Floats
    """Gradient all-reduce and optimizer step, shape (n, S)."""
    update_s: Floats
    """Optimizer step, shape (n, S)."""
    transfer_s: Floats
    """Shape (n, S - 1)."""
    first_s: Floats
    """Least seconds of the first part of a forward, shape (n, S): half of it where the job may slice."""
    first_transfer_s: Floats
    """Least seconds of the first part of a message, shape (n, S - 1)."""


class SequenceCosts:
    """Costs of the stages on these device groups, wherever the layers are cut.

    Attributes
    ----------
    depth
        Warm-up depth of each stage, shape (S,).
    plain_start, recomputing_start
        For every stage and stop, the first start that fits in memory without and with
        recomputation, shape (S, L + 1).
    work_s
        F + B of the layers before each boundary, without recomputation, shape (S, L + 1).
    link_load
        Messages per micro-batch that each shared link carries for each boundary, shape (links, S - 1).
    ways_home
        Where the last gradients and the all-reduces queue.
    """

    def __init__(self, tables: StageTables, variant: Variant, groups: Sequence[PlacedGroup]) -> None:
        self.variant, self.groups, self.num_layers = variant, tuple(groups), tables.num_layers
        columns = [tables.of(variant.share, variant.micro_batch, group.placement) for group in groups]
        depths = warmup_depths(variant.schedule, len(groups), variant.num_microbatches)
        self.depth = np.array(depths)
        self.forward_s = np.array([column.forward_s for column in columns])
        self.backward_s = np.array([column.backward_s for column in columns])
        self.work_s = self.forward_s + self.backward_s
        self.plain_start = np.array([c.plain.starts(k) for c, k in zip(columns, depths, strict=True)])
        self.recomputing_start = np.array([c.recomputing.starts(k) for c, k in zip(columns, depths, strict=True)])
        self._tail_s = np.array([column.tail_s for column in columns])
        self._update_s = np.array([column.update_s for column in columns])
        self._tail_latency_s = np.array([column.tail_latency_s for column in columns])
        self._tail_beyond_s = {
            stage: column.tail_beyond_s for stage, column in enumerate(columns) if column.tail_beyond_s is not None
        }
        self._half_s = np.array([column.half_s for column in columns])
        job, cluster = tables.costs.problem.job, tables.costs.of(variant.share).cluster
        self._overhead_s, self._may_slice = job.action_overhead_s, job.may_slice(variant.schedule, variant.micro_batch)
        self._row = np.arange(len(columns)) * (self.num_layers + 1)
        placed, shape = _device_groups(self.groups), (self.num_stages - 1, self.num_layers + 1)
        messages = [tables.message(variant, *pair) for pair in itertools.pairwise(placed)]
        self.transfer_s = np.array([message.whole_s for message in messages]).reshape(shape)
        self._half_transfer_s = np.array([message.half_s for message in messages]).reshape(shape)
        self.link_load = _link_load(cluster, placed)
        self.ways_home = _ways_home(cluster, placed, variant.share)

    @property
    def num_stages(self) -> int:
        """S."""
        return len(self.groups)

    @property
    def leeway(self) -> Floats:
        """How many times as long as the last one each stage may take, shape (S,)."""
        shares = self.forward_s[:, -1] / np.maximum(self.work_s[:, -1], ALMOST_ZERO)
        return leeways(self.variant, self.num_stages, float(shares.min()))

    def arrangement(self, stops: Ints) -> Arrangement:
        """The arrangement of one cut, stops of shape (S,)."""
        return arrange(self.groups, stops)

    def costs(self, stops: Ints) -> CutCosts:
        """Costs of many cuts, stops of shape (n, S), the last one L."""
        # Flat indices into the (S, L + 1) tables: `take` is several times faster than indexing with two arrays.
        last = self._row + stops
        starts = np.zeros_like(stops)
        starts[:, 1:] = stops[:, :-1]
        first = self._row + starts
        forward_s = self.forward_s.take(last) - self.forward_s.take(first)
        backward_s = self.backward_s.take(last) - self.backward_s.take(first)
        recompute, fits = first_fit(starts, self.plain_start.take(last), self.recomputing_start.take(last))
        backward_s += np.where(recompute, forward_s, 0.0)
        backward_s[(starts >= stops) | ~fits] = np.inf
        tail_s = self._tail_s.take(last) - self._tail_s.take(first) + self._tail_latency_s
        for stage, beyond_s in self._tail_beyond_s.items():
            tail_s[:, stage] += beyond_s[starts[:, stage], stops[:, stage]]
        transfer_s = self.transfer_s.take(last[:, :-1])
        first_s, first_transfer_s = forward_s, transfer_s
        if self._may_slice:
            half_s = np.maximum(self._half_s.take(last) - self._half_s.take(first), forward_s / 2)
            first_s = np.minimum(forward_s, half_s + self._overhead_s)
            first_transfer_s = np.minimum(transfer_s, self._half_transfer_s.take(last[:, :-1]))
        return CutCosts(
            forward_s=forward_s,
            backward_s=backward_s,
            tail_s=tail_s,
            update_s=self._update_s.take(last) - self._update_s.take(first),
            transfer_s=transfer_s,
            first_s=first_s,
            first_transfer_s=first_transfer_s,
        )


def _device_groups(groups: Sequence[PlacedGroup]) -> list[DeviceGroup]:
    """The hosts of each group; the hosts of a class are opened in order."""
    opened, hosts, placed = Counter[int](), tuple[int, ...](), []
    for placement, opens in ((group.placement, group.opens) for group in groups):
        if opens:
            first = opened[placement.server_class]
            opened[placement.server_class] += placement.num_hosts
            hosts = tuple(range(first, first + placement.num_hosts))
        placed.append(DeviceGroup(placement=placement, hosts=hosts))
    return placed


def _link_load(cluster: Cluster, groups: list[DeviceGroup]) -> Floats:
    """How many of each boundary's two messages each link carries, for links that carry more than one message."""
    boundaries: dict[str, list[int]] = {}
    for index, (sender, receiver) in enumerate(itertools.pairwise(groups)):
        for link in (*route_between(cluster, sender, receiver), *route_between(cluster, receiver, sender)):
            boundaries.setdefault(link, []).append(index)
    # Both directions of an interface carry the same boundaries, so each such row is kept once.
    shared = dict.fromkeys(tuple(sorted(carried)) for carried in boundaries.values() if len(carried) > 1)
    load = [np.bincount(carried, minlength=len(groups) - 1) for carried in shared]
    return np.array(load, dtype=float).reshape(len(load), len(groups) - 1)


def _ways_home(cluster: Cluster, groups: list[DeviceGroup], share: Share) -> WaysHome:
    numbers: dict[str, int] = {}

    def numbered(route: tuple[str, ...]) -> list[int]:
        links = [numbers.setdefault(link, len(numbers)) for link in route]
        return [*links, -1, -1][:2]

    gradients = [(), *(route_between(cluster, *pair) for pair in zip(groups[1:], groups, strict=False))]
    all_reduces = [sync_route(cluster, group, share) for group in groups]
    return WaysHome(
        gradient=np.array([numbered(route) for route in gradients]),
        all_reduce=np.array([numbered(route) for route in all_reduces]),
    )
