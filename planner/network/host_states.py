"""Host states: which devices of the current host are taken, before and after a stage.

A server hosts one contiguous run of stages; inside it each island hosts one contiguous run. Hosts
of a class are alike, and so are devices of an island, so only counts matter: an *entry* is what a
stage starts from, an *exit* what it leaves behind, and neither names a host.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster, Link
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.links import link_between_hosts, link_within_host
from stagecut.planner.network.device_groups import most_hosts, placements_in_host, placements_on_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """State of the current host (or whole hosts) after a stage has taken its devices."""

    server_class: int
    num_hosts: int
    island: int
    visited: frozenset[int]
    """Islands of the host used so far, including the current one."""
    used: int
    """Devices of the current island taken so far, on each host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostEntry:
    """State that a stage starts from: the current host as `before`, or newly opened hosts."""

    server_class: int
    opened_hosts: int
    """Hosts opened for this stage; 0 inside the current host."""
    island: int | None
    """The island to continue in; None on a host just opened."""
    before: Exit | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostTransition:
    """A placement that an entry allows, and the exit it leads to; both are indices."""

    entry: int
    placement: Placement
    exit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossing:
    """A transfer from an exit to an entry, both indices; `exit` is None at the start of a pipeline."""

    exit: int | None
    entry: int
    link: Link | None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostStates:
    """All entries and exits, and how they follow one another."""

    entries: tuple[HostEntry, ...]
    exits: tuple[Exit, ...]
    options: tuple[HostTransition, ...]
    crossings: tuple[Crossing, ...]


def build_host_states(problem: Problem, cluster: Cluster, *, micro_batch: int) -> HostStates:
    """Enumerate entries, exits, options and crossings for one micro-batch size, on the cluster of one pipeline."""
    first = _first_entries(problem, cluster, micro_batch)
    openings = [entry for entry in first if any(_options(problem, cluster, entry, micro_batch))]
    entries = {entry: index for index, entry in enumerate(openings)}
    exits: dict[Exit, int] = {}
    options: list[HostTransition] = []
    todo = list(openings)
    while todo:
        entry = todo.pop(0)
        for placement, after in _options(problem, cluster, entry, micro_batch):
            if after not in exits:
                exits[after] = len(exits)
                for following in _following_entries(cluster, after):
                    entries[following] = len(entries)
                    todo.append(following)
            options.append(HostTransition(entry=entries[entry], placement=placement, exit=exits[after]))
    crossings = [Crossing(exit=None, entry=entries[entry], link=None) for entry in openings]
    for after, index in exits.items():
        for entry in (*openings, *_following_entries(cluster, after)):
            crossings.append(Crossing(exit=index, entry=entries[entry], link=_link(cluster, after, entry)))
    return HostStates(entries=tuple(entries), exits=tuple(exits), options=tuple(options), crossings=tuple(crossings))


def _first_entries(problem: Problem, cluster: Cluster, micro_batch: int) -> Iterator[HostEntry]:
    """Open one host of a class or, where the class has a single island, several whole ones at once."""
    for index, server in enumerate(cluster.servers):
        most = most_hosts(problem, server, micro_batch) if len(server.islands) == 1 else 1
        for num_hosts in range(1, most + 1):
            yield HostEntry(server_class=index, opened_hosts=num_hosts, island=None, before=None)


def _following_entries(cluster: Cluster, after: Exit) -> Iterator[HostEntry]:
    """Continue in the same island while devices are left, or in an island not visited yet."""
    if after.num_hosts > 1:
        return
    for island, group in enumerate(cluster.servers[after.server_class].islands):
        if after.used < group.count if island == after.island else island not in after.visited:
            yield HostEntry(server_class=after.server_class, opened_hosts=0, island=island, before=after)


def _options(
    problem: Problem, cluster: Cluster, entry: HostEntry, micro_batch: int
) -> Iterator[tuple[Placement, Exit]]:
    server_class, num_hosts, before = entry.server_class, entry.opened_hosts, entry.before
    visited = before.visited if before is not None else frozenset[int]()
    for island, group in enumerate(cluster.servers[server_class].islands):
        if entry.island not in (None, island):
            continue
        used = before.used if before is not None and before.island == island else 0
        where = {"server_class": server_class, "micro_batch": micro_batch}
        if num_hosts > 1:
            placements = placements_on_hosts(problem, cluster, num_hosts=num_hosts, **where)
        else:
            placements = placements_in_host(problem, island=island, free=group.count - used, **where)
        for placement in placements:
            after = Exit(
                server_class=server_class,
                num_hosts=placement.num_hosts,
                island=island,
                visited=visited | {island},
                used=used + placement.devices_per_host,
            )
            yield placement, after


def _link(cluster: Cluster, after: Exit, entry: HostEntry) -> Link:
    if entry.opened_hosts == 0:
        assert entry.island is not None
        return link_within_host(cluster, after.server_class, after.island, entry.island)
    return link_between_hosts(cluster, (after.server_class, after.num_hosts), (entry.server_class, entry.opened_hosts))
