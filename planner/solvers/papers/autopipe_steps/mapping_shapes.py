"""Mappings: which stages each host runs, in the order of the pipeline, and mappings near a mapping."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import PlacedGroup, placements_in_host, placements_on_hosts

MOST_ORDERS = 24
"""All orders of hosts are looked at where there are no more; else blocks of whole classes only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRun:
    """The stages of one host in order, alike but for their islands; or one stage on several whole hosts."""

    placements: tuple[Placement, ...]

    @property
    def server_class(self) -> int:
        """Of the host."""
        return self.placements[0].server_class

    @property
    def num_hosts(self) -> int:
        """More than one for a single stage only."""
        return self.placements[0].num_hosts

    @property
    def num_stages(self) -> int:
        """On the host."""
        return len(self.placements)

    @property
    def num_devices(self) -> int:
        """That compute."""
        return sum(placement.replicas * placement.tensor_parallel for placement in self.placements)

    @property
    def split(self) -> tuple[int, ...]:
        """Stages of each island that is used, in order."""
        return tuple(len(list(group)) for _, group in itertools.groupby(self.placements, lambda p: p.island))


Mapping = tuple[HostRun, ...]
"""First stages first."""


def seats_of(mapping: Mapping) -> tuple[PlacedGroup, ...]:
    """Seats of the stages."""
    return tuple(
        PlacedGroup(placement=placement, opens=index == 0)
        for run in mapping
        for index, placement in enumerate(run.placements)
    )


def num_stages(mapping: Mapping) -> int:
    """Of the pipeline."""
    return sum(run.num_stages for run in mapping)


def host_runs(problem: Problem, cluster: Cluster, server_class: int, micro_batch: int) -> tuple[HostRun, ...]:
    """Everything that a host of a class may run, those that use most devices first.

    All stages of a host have the same replicas and degree of tensor parallelism. Each island used
    either has as many stages as fit, or is the only one used.
    """
    server = cluster.servers[server_class]
    runs = list[HostRun]()
    for size in range(1, len(server.islands) + 1):
        for islands in itertools.permutations(range(len(server.islands)), size):
            runs += _runs_on(problem, cluster, server_class, islands, micro_batch)
    for num_hosts in range(2, server.count + 1):
        groups = placements_on_hosts(
            problem, cluster, server_class=server_class, num_hosts=num_hosts, micro_batch=micro_batch
        )
        runs += [HostRun(placements=(placement,)) for placement in groups]
    return tuple(sorted(runs, key=lambda run: -run.num_devices / run.num_hosts))


def start_mappings(problem: Problem, cluster: Cluster, micro_batch: int) -> Iterator[Mapping]:
    """Every shape with every order of hosts; with the orders of :func:`host_orders` where these are too many.

    A shape is the replicas and the degree that all stages have, from all devices of a host for one
    stage (replicas inside a server) to one device for each (a pipeline inside a server), and on
    how many whole hosts a stage is.
    """
    menus = [host_runs(problem, cluster, index, micro_batch) for index in range(len(cluster.servers))]
    for shape in dict.fromkeys(_shape(run) for menu in menus for run in menu):
        first = [next((run for run in menu if _shape(run) == shape), None) for menu in menus]
        counts = [
            0 if run is None else server.count // run.num_hosts
            for run, server in zip(first, cluster.servers, strict=True)
        ]
        for order in host_orders(counts):
            mapping = _shortened([run for index in order if (run := first[index]) is not None], problem)
            if mapping:
                yield mapping


def host_orders(counts: Sequence[int]) -> list[tuple[int, ...]]:
    """Sequences of server classes, `counts` of each.

    All of them where they are few. Otherwise classes in blocks, in every order of the classes if
    these are few, else as given and the other way round.
    """
    used = [index for index, count in enumerate(counts) if count > 0]
    orders = math.factorial(sum(counts)) // math.prod(math.factorial(count) for count in counts)
    if not used:
        return []
    if orders <= MOST_ORDERS:
        return list(_permutations(list(counts)))
    classes: Sequence[Sequence[int]] = (used, used[::-1])
    if math.factorial(len(used)) <= MOST_ORDERS:
        classes = list(itertools.permutations(used))
    return [tuple(index for index in order for _ in range(counts[index])) for order in classes]


def neighbours(problem: Problem, cluster: Cluster, mapping: Mapping, micro_batch: int) -> Iterator[Mapping]:
    """Two servers exchanged, one left out, one that is idle put in, or one run in another shape.

    Of equal runs in a row only the first and the last are touched.
    """
    menus = [host_runs(problem, cluster, index, micro_batch) for index in range(len(cluster.servers))]
    edges = _block_edges(mapping)
    yield from _exchanged(mapping, edges)
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
    counts = [cluster.servers[server_class].islands[island].count for island in islands]
    groups = placements_in_host(
        problem, server_class=server_class, island=islands[0], free=max(counts), micro_batch=micro_batch
    )
    for group in groups:
        most = [count // group.devices_per_host for count in counts]
        if 0 in most:
            continue
        for numbers in [[n] for n in range(most[0], 0, -1)] if len(islands) == 1 else [most]:
            yield HostRun(
                placements=tuple(
                    Placement(
                        server_class=server_class,
                        island=island,
                        replicas=group.replicas,
                        tensor_parallel=group.tensor_parallel,
                    )
                    for island, number in zip(islands, numbers, strict=True)
                    for _ in range(number)
                )
            )


def _shape(run: HostRun) -> tuple[int, int, int]:
    placement = run.placements[0]
    return placement.replicas, placement.tensor_parallel, placement.num_hosts


def _shortened(runs: Sequence[HostRun], problem: Problem) -> Mapping:
    """The first runs, with no more stages than there are layers."""
    kept, left = list[HostRun](), problem.model.num_layers
    for run in runs:
        if left > 0:
            kept.append(HostRun(placements=run.placements[:left]))
        left -= run.num_stages
    return tuple(kept)


def _exchanged(mapping: Mapping, edges: Sequence[int]) -> Iterator[Mapping]:
    for first, second in itertools.combinations(edges, 2):
        if mapping[first] != mapping[second]:
            runs = list(mapping)
            runs[first], runs[second] = runs[second], runs[first]
            yield tuple(runs)


def _block_edges(mapping: Mapping) -> list[int]:
    """Where a run differs from the one before or the one after."""
    last = len(mapping) - 1
    return [
        index
        for index, run in enumerate(mapping)
        if index in (0, last) or run != mapping[index - 1] or run != mapping[index + 1]
    ]


def _fits(problem: Problem, cluster: Cluster, mapping: Mapping) -> bool:
    used = [0] * len(cluster.servers)
    for run in mapping:
        used[run.server_class] += run.num_hosts
    enough = all(number <= server.count for number, server in zip(used, cluster.servers, strict=True))
    return enough and num_stages(mapping) <= problem.model.num_layers


def _permutations(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Of a multiset, without repetition."""
    if not any(counts):
        yield ()
    for index, count in enumerate(counts):
        if count > 0:
            rest = [*counts[:index], count - 1, *counts[index + 1 :]]
            yield from ((index, *tail) for tail in _permutations(rest))
