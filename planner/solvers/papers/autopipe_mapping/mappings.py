"""Device mappings: the stages that each host runs, in pipeline order, and small changes to them."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import PlacedGroup, placements_in_host, placements_on_hosts
from stagecut.planner.solvers.heuristic.allocation_graph import MOST_ORDERS
from stagecut.planner.solvers.heuristic.moves import groups_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """The stages of one host in order, alike except for their islands; or one stage on several whole hosts."""

    placements: tuple[Placement, ...]

    @property
    def server_class(self) -> int:
        """Class of the host."""
        return self.placements[0].server_class

    @property
    def num_hosts(self) -> int:
        """More than one for a single stage only."""
        return self.placements[0].num_hosts

    @property
    def num_stages(self) -> int:
        """Stages on the host."""
        return len(self.placements)

    @property
    def num_devices(self) -> int:
        """Devices in use."""
        return sum(placement.replicas * placement.tensor_parallel for placement in self.placements)

    @property
    def split(self) -> tuple[int, ...]:
        """Number of stages on each island in use, in order."""
        return tuple(len(list(group)) for _, group in itertools.groupby(self.placements, lambda p: p.island))

    @property
    def shape(self) -> tuple[int, int, int]:
        """Replicas, tensor parallel degree and hosts of each stage."""
        first = self.placements[0]
        return first.replicas, first.tensor_parallel, first.num_hosts


DeviceMapping = tuple[HostRun, ...]
"""The runs of a pipeline in order."""


def placed_stages(mapping: DeviceMapping) -> tuple[PlacedGroup, ...]:
    """The placement of every stage of a mapping."""
    return groups_of(run.placements for run in mapping)


def num_stages(mapping: DeviceMapping) -> int:
    """Stages of the pipeline."""
    return sum(run.num_stages for run in mapping)


def host_runs(problem: Problem, cluster: Cluster, micro_batch: int) -> list[list[HostRun]]:
    """Everything that a host of each server class may run, those that use most devices first.

    All stages of a host have the same replicas and tensor parallel degree. Each island in use either
    has as many stages as fit, or is the only one in use.
    """
    found = []
    for index, server in enumerate(cluster.servers):
        runs = list[HostRun]()
        for size in range(1, len(server.islands) + 1):
            for islands in itertools.permutations(range(len(server.islands)), size):
                runs += _runs_on(problem, cluster, index, islands, micro_batch)
        for num_hosts in range(2, server.count + 1):
            where = {"server_class": index, "num_hosts": num_hosts}
            groups = placements_on_hosts(problem, cluster, **where, micro_batch=micro_batch)
            runs += [HostRun(placements=(placement,)) for placement in groups]
        found.append(sorted(runs, key=lambda run: -run.num_devices / run.num_hosts))
    return found


def start_mappings(problem: Problem, cluster: Cluster, micro_batch: int) -> Iterator[DeviceMapping]:
    """Every shape that stages may have, with every order of hosts that :func:`host_orders` gives.

    All stages of a mapping have the same shape: from all devices of a host for one stage (replicas inside
    a server) to one device for each stage (a pipeline inside a server), or several whole hosts.
    """
    menus = host_runs(problem, cluster, micro_batch)
    for shape in dict.fromkeys(run.shape for menu in menus for run in menu):
        first = [next((run for run in menu if run.shape == shape), None) for menu in menus]
        counts = [
            server.count // run.num_hosts if run is not None else 0
            for server, run in zip(cluster.servers, first, strict=True)
        ]
        for order in host_orders(counts):
            yield _shortened([run for index in order if (run := first[index])], problem.model.num_layers)


def host_orders(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Sequences of server classes with `counts` of each.

    All of them where they are few. Otherwise the hosts of a class stay together, with the classes in every
    order if these are few, else as given and reversed.
    """
    used = [index for index, count in enumerate(counts) if count > 0]
    if not used:
        return []
    if math.factorial(sum(counts)) // math.prod(map(math.factorial, counts)) <= MOST_ORDERS:
        return list(_arrangements(list(counts)))
    few = math.factorial(len(used)) <= MOST_ORDERS
    classes = list(itertools.permutations(used)) if few else [tuple(used), tuple(used[::-1])]
    return [tuple(index for index in order for _ in range(counts[index])) for order in classes]


def neighbours(problem: Problem, cluster: Cluster, mapping: DeviceMapping, micro_batch: int) -> Iterator[DeviceMapping]:
    """Mappings with two hosts exchanged, one left out, an idle one put in, or one run in another shape.

    Of equal runs in a row only the first and the last are changed.
    """
    menus = host_runs(problem, cluster, micro_batch)
    edges = _block_edges(mapping)
    for first, second in itertools.combinations(edges, 2):
        if mapping[first] != mapping[second]:
            runs = list(mapping)
            runs[first], runs[second] = runs[second], runs[first]
            yield tuple(runs)
    for index in edges:
        run = mapping[index]
        for new in ((), *((other,) for other in menus[run.server_class] if other != run)):
            changed = (*mapping[:index], *new, *mapping[index + 1 :])
            if changed and _fits(problem, cluster, changed):
                yield changed
    for index in sorted({0, *(edge + 1 for edge in edges)}):
        inserted = ((*mapping[:index], menu[0], *mapping[index:]) for menu in menus if menu)
        yield from (new for new in inserted if _fits(problem, cluster, new))


def _runs_on(
    problem: Problem, cluster: Cluster, server_class: int, islands: tuple[int, ...], micro_batch: int
) -> Iterator[HostRun]:
    """Runs that use exactly these islands of a host, in this order."""
    counts = [cluster.servers[server_class].islands[island].count for island in islands]
    where = {"server_class": server_class, "island": islands[0], "free": max(counts)}
    for group in placements_in_host(problem, **where, micro_batch=micro_batch):
        most = [count // group.devices_per_host for count in counts]
        if 0 in most:
            continue
        for numbers in [[n] for n in range(most[0], 0, -1)] if len(islands) == 1 else [most]:
            on_each = zip(islands, numbers, strict=True)
            placements = (replace(group, island=island) for island, number in on_each for _ in range(number))
            yield HostRun(placements=tuple(placements))


def _shortened(runs: Sequence[HostRun], num_layers: int) -> DeviceMapping:
    """The first runs, with no more stages than there are layers."""
    kept, left = list[HostRun](), num_layers
    for run in runs:
        if left > 0:
            kept.append(HostRun(placements=run.placements[:left]))
        left -= run.num_stages
    return tuple(kept)


def _block_edges(mapping: DeviceMapping) -> list[int]:
    """Indices of the runs that differ from the one before or after them."""
    padded = (None, *mapping, None)
    return [index for index, run in enumerate(mapping) if not padded[index] == run == padded[index + 2]]


def _fits(problem: Problem, cluster: Cluster, mapping: DeviceMapping) -> bool:
    """Whether there are enough hosts and layers."""
    used = [0] * len(cluster.servers)
    for run in mapping:
        used[run.server_class] += run.num_hosts
    enough = all(number <= server.count for number, server in zip(used, cluster.servers, strict=True))
    return enough and num_stages(mapping) <= problem.model.num_layers


def _arrangements(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Distinct permutations of a multiset."""
    if not any(counts):
        yield ()
    for index, count in enumerate(counts):
        if count > 0:
            rest = [*counts[:index], count - 1, *counts[index + 1 :]]
            yield from ((index, *tail) for tail in _arrangements(rest))
