"""Device mappings: the stages that each host runs, in pipeline order, and small changes to them."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.problem import Problem
from stagecut.planner.network.device_groups import name_devices, placements_in_host, placements_on_hosts
from stagecut.planner.solvers.heuristic.allocation_graph import MOST_ORDERS
from stagecut.planner.solvers.heuristic.moves import Run, groups_of

DeviceMapping = tuple[Run, ...]
"""The runs of a pipeline in order; the stages of one are alike except for their islands."""


def host_runs(problem: Problem, cluster: Cluster, micro_batch: int) -> list[list[Run]]:
    """Everything that a host of each server class may run, those that use most devices first.

    All stages of a host have the same replicas and tensor parallel degree. Each island in use either
    has as many stages as fit, or is the only one in use.
    """
    found = []
    for index, server in enumerate(cluster.servers):
        runs = list[Run]()
        for size in range(1, len(server.islands) + 1):
            for islands in itertools.permutations(range(len(server.islands)), size):
                runs += _runs_on(problem, cluster, index, islands, micro_batch)
        for num_hosts in range(2, server.count + 1):
            where = {"server_class": index, "num_hosts": num_hosts}
            groups = placements_on_hosts(problem, cluster, **where, micro_batch=micro_batch)
            runs += [(placement,) for placement in groups]
        found.append(sorted(runs, key=lambda run: -len(run) * run[0].devices_per_host))
    return found


def stages_per_island(run: Run) -> tuple[int, ...]:
    """Number of stages on each island in use, in order."""
    return tuple(len(list(stages)) for _, stages in itertools.groupby(run, lambda placement: placement.island))


def start_mappings(problem: Problem, cluster: Cluster, micro_batch: int) -> Iterator[DeviceMapping]:
    """Every shape that stages may have, with every order of hosts that :func:`host_orders` gives.

    All stages of a mapping have the same shape: from all devices of a host for one stage (replicas inside
    a server) to one device for each stage (a pipeline inside a server), or several whole hosts.
    """
    menus = host_runs(problem, cluster, micro_batch)
    for shape in dict.fromkeys(_shape(run) for menu in menus for run in menu):
        first = [next((run for run in menu if _shape(run) == shape), None) for menu in menus]
        counts = [
            server.count // run[0].num_hosts if run is not None else 0
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
        for new in ((), *((other,) for other in menus[run[0].server_class] if other != run)):
            changed = (*mapping[:index], *new, *mapping[index + 1 :])
            if changed and _fits(problem, cluster, changed):
                yield changed
    for index in sorted({0, *(edge + 1 for edge in edges)}):
        inserted = ((*mapping[:index], menu[0], *mapping[index:]) for menu in menus if menu)
        yield from (new for new in inserted if _fits(problem, cluster, new))


def _runs_on(
    problem: Problem, cluster: Cluster, server_class: int, islands: tuple[int, ...], micro_batch: int
) -> Iterator[Run]:
    """Runs that use exactly these islands of a host, in this order."""
    counts = [cluster.servers[server_class].islands[island].count for island in islands]
    where = {"server_class": server_class, "island": islands[0], "free": max(counts)}
    for group in placements_in_host(problem, **where, micro_batch=micro_batch):
        most = [count // group.devices_per_host for count in counts]
        if 0 in most:
            continue
        for numbers in [[n] for n in range(most[0], 0, -1)] if len(islands) == 1 else [most]:
            on_each = zip(islands, numbers, strict=True)
            yield tuple(replace(group, island=island) for island, number in on_each for _ in range(number))


def _shape(run: Run) -> tuple[int, int, int]:
    """Replicas, tensor parallel degree and hosts of each stage."""
    return run[0].replicas, run[0].tensor_parallel, run[0].num_hosts


def _shortened(runs: Sequence[Run], num_layers: int) -> DeviceMapping:
    """The first runs, with no more stages than there are layers."""
    before = itertools.accumulate(map(len, runs), initial=0)
    return tuple(run[: num_layers - start] for run, start in zip(runs, before, strict=False) if start < num_layers)


def _block_edges(mapping: DeviceMapping) -> list[int]:
    """Indices of the runs that differ from the one before or after them."""
    padded = (None, *mapping, None)
    return [index for index, run in enumerate(mapping) if not padded[index] == run == padded[index + 2]]


def _fits(problem: Problem, cluster: Cluster, mapping: DeviceMapping) -> bool:
    """Whether there are enough hosts and layers."""
    groups = groups_of(mapping)
    return len(groups) <= problem.model.num_layers and name_devices(cluster, groups) is not None


def _arrangements(counts: list[int]) -> Iterator[tuple[int, ...]]:
    """Distinct permutations of a multiset."""
    if not any(counts):
        yield ()
    for index, count in enumerate(counts):
        if count > 0:
            rest = [*counts[:index], count - 1, *counts[index + 1 :]]
            yield from ((index, *tail) for tail in _arrangements(rest))
