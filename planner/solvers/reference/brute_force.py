"""Simulate every plan of the search space: the oracle for the other solvers.

The enumeration is a deliberate second statement of the search space: it follows the words of docs/search_space.md,
share by share, host by host and device by device, and shares no code with the networks of the exact solvers.
"""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypedDict

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import RECOMPUTE_MODES, NamedStage, arrange, assemble, plan_of
from stagecut.planner.network.device_groups import PlacedGroup, name_devices
from stagecut.planner.solvers.search.search import Search

MAX_LAYERS = 8
MAX_LAYOUTS = 200_000
BATCH = 512
"""Plans simulated in one call."""

Groups = tuple[PlacedGroup, ...]
"""The device groups of a pipeline, in order."""


def solve(problem: Problem, search: Search) -> Result:
    """The fastest plan, proven optimal by trying all others.

    Raises
    ------
    UnsupportedError
        If the problem is too large to enumerate.
    """
    _refuse_if_large(problem, search.costs)
    plans = all_plans(problem, search.costs)
    while batch := list(itertools.islice(plans, BATCH)):
        if search.out_of_budget:
            return search.result("brute-force", proves=True)
        search.offer(batch)
    search.raise_bound(search.best_s)
    return search.result("brute-force", proves=True, exhausted=True)


def all_plans(problem: Problem, costs: CostModel | None = None) -> Iterator[Plan]:
    """Every plan of the search space that fits in memory, up to renaming equal hosts and devices."""
    costs = costs or CostModel(problem)
    for variant, groups in _placements(costs):
        share_costs = costs.of(variant.share)
        for cuts in itertools.combinations(range(1, problem.model.num_layers), len(groups) * variant.chunks - 1):
            stops = (*cuts, problem.model.num_layers)
            if variant.schedule is Schedule.INTERLEAVED:
                plan = _interleaved(share_costs, variant, groups, stops)
            else:
                plan = assemble(share_costs, variant, arrange(groups, stops))
            if plan is not None:
                yield plan


def _refuse_if_large(problem: Problem, costs: CostModel) -> None:
    num_layers = problem.model.num_layers
    if num_layers > MAX_LAYERS:
        raise UnsupportedError(
            f"solver 'brute-force': the model has {num_layers} layers, more than {MAX_LAYERS}; use 'milp'"
        )
    count = 0
    for variant, groups in _placements(costs):
        count += math.comb(num_layers - 1, len(groups) * variant.chunks - 1)
        if count > MAX_LAYOUTS:
            raise UnsupportedError(f"solver 'brute-force': more than {MAX_LAYOUTS} plans to simulate; use 'milp'")


def _interleaved(costs: CostModel, variant: Variant, groups: Groups, stops: Sequence[int]) -> Plan | None:
    """The plan whose stages take turns on the device groups; None if it does not fit."""
    names = name_devices(costs.cluster, groups)
    assert names is not None
    modes = RECOMPUTE_MODES[costs.problem.job.recompute]

    def plan(recompute: Sequence[bool]) -> Plan:
        turns = itertools.cycle(zip(groups, names, recompute, strict=True))
        cuts = [
            NamedStage(start=start, stop=stop, placement=group.placement, devices=devices, recompute=again)
            for (start, stop), (group, devices, again) in zip(itertools.pairwise((0, *stops)), turns, strict=False)
        ]
        return plan_of(costs, variant, cuts)

    def fits(candidate: Plan) -> list[bool]:
        numbers = costs.plan(candidate)
        return [bool(fit) for fit in (numbers.memory_bytes <= numbers.limit_bytes)[: len(groups)]]

    preferred = plan([modes[0]] * len(groups))
    last = preferred if all(fits(preferred)) else plan([modes[0] if fit else modes[-1] for fit in fits(preferred)])
    return last if all(fits(last)) else None


def _placements(costs: CostModel) -> Iterator[tuple[Variant, Groups]]:
    """Every variant with every sequence of device groups for its pipeline."""
    for variant in costs.problem.variants:
        walk = Walk(problem=costs.problem, cluster=costs.of(variant.share).cluster, micro_batch=variant.micro_batch)
        if variant.schedule is not Schedule.INTERLEAVED:
            unopened = tuple(server.count for server in walk.cluster.servers)
            yield from ((variant, groups) for groups in walk.extensions((), unopened, None))
            continue
        for groups in walk.uniform(costs.problem.model.num_layers // variant.chunks):
            if variant.num_microbatches % len(groups) == 0:
                yield variant, groups


class _Split(TypedDict):
    """Fields of a placement."""

    replicas: int
    tensor_parallel: int
    sharding: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _OpenHost:
    """The single host of the last stage."""

    server_class: int
    island: int
    entered: frozenset[int]
    """Islands used so far."""
    free: int
    """Devices left in the island of the last stage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """All ways to place the device groups of one pipeline one after another, first layer first."""

    problem: Problem
    cluster: Cluster
    """The share of the pipeline."""
    micro_batch: int

    def uniform(self, most: int) -> Iterator[Groups]:
        """1 to `most` equal device groups, on hosts of one class filled one after the other."""
        for placement, per_host, room in self._equal_groups():
            for num_groups in range(1, min(most, room) + 1):
                yield tuple(
                    PlacedGroup(placement=placement, opens=index % per_host == 0) for index in range(num_groups)
                )

    def _equal_groups(self) -> Iterator[tuple[Placement, int, int]]:
        """Every device group, with the number of such groups that fit on a host and in the whole class."""
        for index, server in enumerate(self.cluster.servers):
            for island, devices in enumerate(server.islands):
                for split in self._splits(range(1, devices.count + 1)):
                    placement = Placement(server_class=index, island=island, **split)
                    per_host = devices.count // placement.devices_per_host
                    yield placement, per_host, per_host * server.count
            for whole in self._whole_hosts(index, server.count):
                yield whole, 1, server.count // whole.num_hosts

    def extensions(self, groups: Groups, unopened: tuple[int, ...], host: _OpenHost | None) -> Iterator[Groups]:
        """The groups, and every way to continue them; `unopened` hosts are left of each class."""
        if groups:
            yield groups
        if len(groups) == self.problem.model.num_layers:
            return
        if host is not None:
            for group, inside in self._in_host(host):
                yield from self.extensions((*groups, group), unopened, inside)
        for index, left in enumerate(unopened):
            for group, after in self._in_new_hosts(index, left):
                remaining = (*unopened[:index], left - group.placement.num_hosts, *unopened[index + 1 :])
                yield from self.extensions((*groups, group), remaining, after)

    def _in_host(self, host: _OpenHost) -> Iterator[tuple[PlacedGroup, _OpenHost]]:
        for island, devices in enumerate(self.cluster.servers[host.server_class].islands):
            if island == host.island:
                yield from self._in_island(host, island, host.free, opens=False)
            elif island not in host.entered:
                yield from self._in_island(host, island, devices.count, opens=False)

    def _in_new_hosts(self, server_class: int, left: int) -> Iterator[tuple[PlacedGroup, _OpenHost | None]]:
        if left == 0:
            return
        for island, devices in enumerate(self.cluster.servers[server_class].islands):
            fresh = _OpenHost(server_class=server_class, island=island, entered=frozenset(), free=devices.count)
            yield from self._in_island(fresh, island, devices.count, opens=True)
        for whole in self._whole_hosts(server_class, left):
            yield PlacedGroup(placement=whole, opens=True), None

    def _in_island(
        self, host: _OpenHost, island: int, free: int, *, opens: bool
    ) -> Iterator[tuple[PlacedGroup, _OpenHost]]:
        for split in self._splits(range(1, free + 1)):
            placement = Placement(server_class=host.server_class, island=island, **split)
            left = free - placement.devices_per_host
            after = replace(host, island=island, entered=host.entered | {island}, free=left)
            yield PlacedGroup(placement=placement, opens=opens), after

    def _whole_hosts(self, server_class: int, most: int) -> Iterator[Placement]:
        """All devices of 2 to `most` hosts; a replica stays on one host."""
        islands = self.cluster.servers[server_class].islands
        if len(islands) > 1:
            return
        for num_hosts in range(2, most + 1):
            for split in self._splits([num_hosts * islands[0].count]):
                if islands[0].count % split["tensor_parallel"] == 0:
                    yield Placement(server_class=server_class, island=0, num_hosts=num_hosts, **split)

    def _splits(self, device_counts: Sequence[int]) -> Iterator[_Split]:
        """Replicas, devices of each, and how these divide it, that use exactly one of these numbers of devices."""
        for count, (degree, sharding) in itertools.product(device_counts, self.problem.divisions):
            if count % degree == 0 and self.problem.job.allows_replicas(count // degree, self.micro_batch):
                yield {"replicas": count // degree, "tensor_parallel": degree, "sharding": sharding}
