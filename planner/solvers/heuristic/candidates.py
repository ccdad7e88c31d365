"""Candidate plans by estimate: device groups by dynamic programming, layers by their sums."""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import ALMOST_ZERO
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import Share
from stagecut.planner.network.arrangement import arrangement_of
from stagecut.planner.network.device_groups import placements_in_host, placements_on_whole_hosts
from stagecut.planner.solvers.heuristic.allocation_graph import (
    AllocationGraph,
    all_counts,
    allocation_graph,
    class_orders,
    counts_in_orders,
)
from stagecut.planner.solvers.heuristic.estimate import estimated_times
from stagecut.planner.solvers.heuristic.group_search import group_sequences
from stagecut.planner.solvers.heuristic.local_search import descend, sequence_of
from stagecut.planner.solvers.heuristic.min_max_cut import min_max_stops
from stagecut.planner.solvers.heuristic.sequence_costs import SequenceCosts
from stagecut.planner.solvers.heuristic.stage_cost_tables import StageTables
from stagecut.planner.solvers.search.search import Search

# Half or twice as many limits of either kind, or finer limits half or twice as far apart, change none of 6 plans.
COARSE = np.array((1.02, 1.05, 1.08, 1.12, 1.17, 1.23, 1.3, 1.4, 1.55, 1.75, 2.0, 2.5, 3.5, 6.0, 12.0, math.inf))
"""Time limits of coarse candidates, relative to the time of a stage if all devices were always busy."""
FINE = np.linspace(0.88, 1.15, 19)
"""Time limits of fine candidates, relative to that of the best coarse one."""
MOST_ARCS = 20_000
"""All counts of hosts are searched if that takes no more arcs, otherwise those of the first orders of classes.

Bounds the time on clusters of many classes; on 12 problems of up to 4 classes it changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Layers on device groups."""

    sequence: SequenceCosts
    stops: Ints
    """Shape (S,)."""
    seconds: float
    """Iteration time, estimated or simulated."""
    limit_s: float = math.inf
    """The limit on the seconds of a stage per micro-batch that led to these groups, if there was one."""
    with_tails: bool = False
    """Whether these seconds include a part of gradient all-reduce and optimizer step."""


def best_known(search: Search, tables: StageTables) -> Candidate | None:
    """The best plan, simulated, if its devices have one stage each and its micro-batches one size."""
    plan = search.best_plan
    if plan is None or plan.schedule is Schedule.INTERLEAVED or plan.is_unequal:
        return None
    sequence, stops = sequence_of(tables, plan.variant, arrangement_of(search.costs.of(plan.share), plan))
    return Candidate(sequence=sequence, stops=stops, seconds=search.best_s)


class CandidateSearch:
    """Candidates for the variants of one problem."""

    def __init__(self, tables: StageTables) -> None:
        self.tables = tables
        self._problem, self._costs = tables.costs.problem, tables.costs
        self._floor, self._graph = cache(self._floor_of), cache(self._graph_of)

    def floor_s(self, variant: Variant) -> float:
        """Iteration time if all devices were always busy, after one micro-batch on the fastest groups."""
        stage_s, total_s = self._floor(variant.share, variant.micro_batch)
        return (variant.num_microbatches - 1) * stage_s + total_s

    def coarse(self, variant: Variant, *, count: int) -> list[Candidate]:
        """The best of `count` candidates over few orders of hosts, and the best of those limited with their tails."""
        stage_s, _ = self._floor(variant.share, variant.micro_batch)
        found = list[Candidate]()
        for with_tails in (False, True):
            own = self._candidates(variant, stage_s * COARSE, all_orders=False, count=count, with_tails=with_tails)[:1]
            found += (one for one in own if not found or one.sequence.groups != found[0].sequence.groups)
        return found

    def fine(self, start: Candidate, *, count: int) -> list[Candidate]:
        """Candidates near the limit of a coarse one, over many orders of hosts and with layers moved.

        The smallest estimate comes first.
        """
        variant, limits_s = start.sequence.variant, start.limit_s * FINE
        return self._candidates(variant, limits_s, all_orders=True, count=count, with_tails=start.with_tails)

    def num_fine_arcs(self, variant: Variant) -> int:
        """How much work :meth:`fine` is."""
        return len(self._graph(variant.share, variant.micro_batch, all_orders=True).arcs)

    def _candidates(
        self, variant: Variant, limits_s: Floats, *, all_orders: bool, count: int, with_tails: bool
    ) -> list[Candidate]:
        found = []
        graph = self._graph(variant.share, variant.micro_batch, all_orders=all_orders)
        for grouping in group_sequences(self.tables, variant, graph, limits_s, count=count, with_tails=with_tails):
            sequence = SequenceCosts(self.tables, variant, grouping.groups)
            even = min_max_stops(sequence, sequence.leeway)
            cuts = np.array([grouping.stops] if even is None else [grouping.stops, even])
            times_s = estimated_times(sequence, cuts)
            stops, seconds = cuts[times_s.argmin()], float(times_s.min())
            if all_orders:
                stops, seconds = descend(sequence, stops)
            limit_s = grouping.limit_s
            found.append(
                Candidate(sequence=sequence, stops=stops, seconds=seconds, limit_s=limit_s, with_tails=with_tails)
            )
        return sorted(found, key=lambda candidate: candidate.seconds)

    def _floor_of(self, share: Share, micro_batch: int) -> tuple[float, float]:
        """Least seconds per micro-batch of the slowest stage, and of all layers one after another."""
        cluster = self._costs.of(share).cluster
        rate, layers_s = 0.0, np.full(self.tables.num_layers, math.inf)
        for (server_class, island), placements in self._groups(cluster, micro_batch).items():
            device_s = np.full(self.tables.num_layers, math.inf)
            for placement in placements:
                work_s = self._layer_work(share, micro_batch, placement)
                layers_s = np.minimum(layers_s, work_s)
                device_s = np.minimum(device_s, work_s * placement.replicas * placement.tensor_parallel)
            server = cluster.servers[server_class]
            rate += server.count * server.islands[island].count / max(float(device_s.sum()), ALMOST_ZERO)
        stage_s = max(1 / rate, float(layers_s.max())) if rate > 0 else math.inf
        return stage_s, float(layers_s.sum())

    def _graph_of(self, share: Share, micro_batch: int, *, all_orders: bool) -> AllocationGraph:
        cluster = self._costs.of(share).cluster
        if not all_orders:
            counts = counts_in_orders(cluster, self._orders(share, micro_batch))
            return allocation_graph(self._problem, cluster, micro_batch, allowed=counts)
        few = self._graph(share, micro_batch, all_orders=False)
        arcs_per_host = len(few.arcs) / sum(server.count for server in cluster.servers)
        num_counts = math.prod(server.count + 1 for server in cluster.servers)
        few_counts = num_counts * len(cluster.servers) * arcs_per_host <= MOST_ARCS
        counts = all_counts(cluster) if few_counts else counts_in_orders(cluster, class_orders(cluster))
        return allocation_graph(self._problem, cluster, micro_batch, allowed=counts)

    def _orders(self, share: Share, micro_batch: int) -> list[tuple[int, ...]]:
        """Server classes as given, fastest first, slowest first, largest memory first."""
        costs = self._costs.of(share)
        classes = range(len(costs.cluster.servers))
        device_s, memory_bytes = [math.inf for _ in classes], [-math.inf for _ in classes]
        for (index, _), placements in self._groups(costs.cluster, micro_batch).items():
            for placement in placements:
                work_s = float(self._layer_work(share, micro_batch, placement).sum())
                device_s[index] = min(device_s[index], work_s * placement.replicas * placement.tensor_parallel)
                memory_bytes[index] = max(memory_bytes[index], costs.stages.device_type(placement).memory_bytes)
        fastest_first = sorted(classes, key=device_s.__getitem__)
        slowest_first = sorted(classes, key=device_s.__getitem__, reverse=True)
        largest_first = sorted(classes, key=memory_bytes.__getitem__, reverse=True)
        return list(dict.fromkeys(map(tuple, (classes, fastest_first, slowest_first, largest_first))))

    def _groups(self, cluster: Cluster, micro_batch: int) -> dict[tuple[int, int], list[Placement]]:
        """The device groups of each island, by server class and island; those of several hosts included."""
        groups = dict[tuple[int, int], list[Placement]]()
        for index, server in enumerate(cluster.servers):
            for island, devices in enumerate(server.islands):
                inside = placements_in_host(
                    self._problem, server_class=index, island=island, free=devices.count, micro_batch=micro_batch
                )
                groups[index, island] = list(inside)
            groups[index, 0] += placements_on_whole_hosts(
                self._problem, cluster, server_class=index, most=server.count, micro_batch=micro_batch
            )
        return {island: placements for island, placements in groups.items() if placements}

    def _layer_work(self, share: Share, micro_batch: int, placement: Placement) -> Floats:
        """F + B of every layer, shape (L,)."""
        table = self.tables.of(share, micro_batch, placement)
        return np.diff(table.forward_s + table.backward_s)
