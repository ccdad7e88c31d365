"""Sketches of plans: device groups by dynamic programming, layers by their sums."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.arrays import Floats, Ints
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.share import Share
from stagecut.planner.network.device_groups import placements_in_host, placements_on_hosts
from stagecut.planner.solvers.heuristic.balance import balanced
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.host_steps import (
    Counts,
    HostSteps,
    all_counts,
    chains,
    host_steps,
    most_whole_hosts,
)
from stagecut.planner.solvers.heuristic.local_search import descend
from stagecut.planner.solvers.heuristic.seat_search import seat_sequences
from stagecut.planner.solvers.heuristic.seated import SeatedStages
from stagecut.planner.solvers.heuristic.stage_tables import StageTable, StageTables

COARSE = np.array((1.02, 1.05, 1.08, 1.12, 1.17, 1.23, 1.3, 1.4, 1.55, 1.75, 2.0, 2.5, 3.5, 6.0, 12.0, math.inf))
"""Limits of a first sketch, relative to the time of a stage if all devices were busy all the time."""
FINE = np.linspace(0.88, 1.15, 19)
"""Limits of a second sketch, relative to that of the best of the first one."""
MOST_STEPS = 20_000
"""All orders of hosts are looked at where that takes no more steps."""
MOST_ORDERS = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Sketch:
    """Layers on seats, with an estimate of the iteration time."""

    seated: SeatedStages
    stops: Ints
    """Shape (S,)."""
    limit_s: float
    """Seconds per micro-batch and stage that led to the groups."""
    seconds: float


class Sketcher:
    """Sketches of the variants of one problem."""

    def __init__(self, tables: StageTables) -> None:
        self.tables = tables
        self._problem, self._costs = tables.costs.problem, tables.costs
        self._steps: dict[tuple[Share, int, bool], HostSteps] = {}
        self._floors: dict[tuple[Share, int], tuple[float, float]] = {}

    def floor_s(self, variant: Variant) -> float:
        """Iteration time if all devices were busy all the time, after one micro-batch on the fastest groups."""
        stage_s, total_s = self._floor(variant.share, variant.micro_batch)
        return (variant.num_microbatches - 1) * stage_s + total_s

    def coarse(self, variant: Variant, *, count: int) -> list[Sketch]:
        """Sketches over few orders of hosts, the smallest estimate first."""
        stage_s, _ = self._floor(variant.share, variant.micro_batch)
        return self._sketches(variant, stage_s * COARSE, all_orders=False, count=count, finish=self._as_found)

    def fine(self, variant: Variant, limit_s: float, *, count: int) -> list[Sketch]:
        """Sketches near a limit over many orders of hosts, layers moved about, the smallest estimate first."""
        return self._sketches(variant, limit_s * FINE, all_orders=True, count=count, finish=self._descended)

    def num_fine_steps(self, variant: Variant) -> int:
        """How much work :meth:`fine` is."""
        return len(self._host_steps(variant, all_orders=True).steps)

    def _sketches(
        self,
        variant: Variant,
        limits_s: Floats,
        *,
        all_orders: bool,
        count: int,
        finish: Callable[[SeatedStages, Ints], tuple[Ints, float]],
    ) -> list[Sketch]:
        found = []
        steps = self._host_steps(variant, all_orders=all_orders)
        for sequence in seat_sequences(self.tables, variant, steps, limits_s, count=count):
            seated = SeatedStages(self.tables, variant, sequence.seats)
            stops, seconds = finish(seated, np.array(sequence.stops))
            found.append(Sketch(seated=seated, stops=stops, limit_s=sequence.limit_s, seconds=seconds))
        return sorted(found, key=lambda sketch: sketch.seconds)

    def _as_found(self, seated: SeatedStages, stops: Ints) -> tuple[Ints, float]:
        even = balanced(seated)
        cuts = [stops] if even is None else [stops, even]
        times_s = estimated_times(seated, np.array(cuts))
        best = int(np.argmin(times_s))
        return cuts[best], float(times_s[best])

    def _descended(self, seated: SeatedStages, stops: Ints) -> tuple[Ints, float]:
        return descend(seated, self._as_found(seated, stops)[0])

    def _floor(self, share: Share, micro_batch: int) -> tuple[float, float]:
        """Least seconds per micro-batch of the slowest stage, and of all layers one after another."""
        if (share, micro_batch) not in self._floors:
            cluster = self._costs.of(share).cluster
            rate, layers_s = 0.0, np.full(self.tables.num_layers, math.inf)
            for island, placements in _groups(self._problem, cluster, micro_batch).items():
                device_s = np.full(self.tables.num_layers, math.inf)
                for placement in placements:
                    work_s = _layer_work(self.tables.of(share, micro_batch, placement))
                    layers_s = np.minimum(layers_s, work_s)
                    device_s = np.minimum(device_s, work_s * placement.replicas * placement.tensor_parallel)
                rate += _num_devices(cluster, *island) / max(float(device_s.sum()), 1e-300)
            stage_s = max(1 / rate, float(layers_s.max())) if rate > 0 else math.inf
            self._floors[share, micro_batch] = stage_s, float(layers_s.sum())
        return self._floors[share, micro_batch]

    def _host_steps(self, variant: Variant, *, all_orders: bool) -> HostSteps:
        key = (variant.share, variant.micro_batch, all_orders)
        if key not in self._steps:
            self._steps[key] = self._new_host_steps(variant, all_orders=all_orders)
        return self._steps[key]

    def _new_host_steps(self, variant: Variant, *, all_orders: bool) -> HostSteps:
        cluster = self._costs.of(variant.share).cluster

        def over(allowed: frozenset[Counts]) -> HostSteps:
            return host_steps(self._problem, cluster, variant.micro_batch, allowed=allowed)

        few = over(chains(cluster, self._orders(variant)))
        if not all_orders:
            return few
        num_hosts = sum(server.count for server in cluster.servers)
        steps_per_host = len(few.steps) / num_hosts
        num_counts = math.prod(server.count + 1 for server in cluster.servers)
        if num_counts * len(cluster.servers) * steps_per_host <= MOST_STEPS:
            return over(all_counts(cluster))
        orders = itertools.islice(itertools.permutations(range(len(cluster.servers))), MOST_ORDERS)
        return over(chains(cluster, orders))

    def _orders(self, variant: Variant) -> list[tuple[int, ...]]:
        """Server classes as given, fastest first, slowest first, largest memory first."""
        cluster = self._costs.of(variant.share).cluster
        classes = range(len(cluster.servers))
        groups = _groups(self._problem, cluster, variant.micro_batch)

        def least(value: Callable[[Placement], float]) -> Callable[[int], float]:
            return lambda index: min(
                (value(p) for (server, _), places in groups.items() if server == index for p in places),
                default=math.inf,
            )

        def device_s(placement: Placement) -> float:
            table = self.tables.of(variant.share, variant.micro_batch, placement)
            return float(_layer_work(table).sum()) * placement.replicas * placement.tensor_parallel

        slowness = least(device_s)
        smallness = least(lambda placement: -self._costs.of(variant.share).stages.device_type(placement).memory_bytes)
        orders = (
            tuple(classes),
            tuple(sorted(classes, key=slowness)),
            tuple(sorted(classes, key=slowness, reverse=True)),
            tuple(sorted(classes, key=smallness)),
        )
        return list(dict.fromkeys(orders))


def _groups(problem: Problem, cluster: Cluster, micro_batch: int) -> dict[tuple[int, int], list[Placement]]:
    """The device groups of each island, by server class and island; those of several hosts included."""
    groups = dict[tuple[int, int], list[Placement]]()
    for index, server in enumerate(cluster.servers):
        for island, devices in enumerate(server.islands):
            where = {"server_class": index, "island": island}
            inside = placements_in_host(problem, **where, free=devices.count, micro_batch=micro_batch)
            groups[index, island] = list(inside)
        for num_hosts in range(2, most_whole_hosts(problem, cluster, micro_batch, server_class=index) + 1):
            groups[index, 0] += placements_on_hosts(
                problem, cluster, server_class=index, num_hosts=num_hosts, micro_batch=micro_batch
            )
    return {island: placements for island, placements in groups.items() if placements}


def _num_devices(cluster: Cluster, server_class: int, island: int) -> int:
    """Of the whole class."""
    server = cluster.servers[server_class]
    return server.count * server.islands[island].count


def _layer_work(table: StageTable) -> Floats:
    """F + B of every layer, shape (L,)."""
    return np.diff(table.forward_s + table.backward_s)
