"""The cluster as planners for identical devices see it: equal servers, every device as slow as the slowest.

Most published planners know one kind of device and one kind of server. Here they plan for a cluster of
equal servers made of the worst of everything: the slowest devices, the smallest memory, the slowest
links. What they decide is laid over the real servers in the cluster's order, and simulated with what
these really are.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations_with_replacement

import numpy as np

from planner.core.cluster import UNLIMITED, Cluster, Link, Server, slowest
from planner.core.errors import UnsupportedError
from planner.core.placement import Placement
from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.schedule import Schedule
from planner.core.share import WHOLE, Share
from planner.cost.cost_model import CostModel
from planner.cost.links import link_between_hosts, link_within_host
from planner.cost.plan_costs import Ints
from planner.cost.stage_costs import StageCostModel, StageCosts
from planner.network.layout import RECOMPUTE_MODES, Block, assemble
from planner.network.seating import Seat
from planner.solvers.search import Search
from planner.solvers.uniform_intervals import Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Devices for one stage."""

    replicas: int = 1
    tensor_parallel: int = 1

    @property
    def num_devices(self) -> int:
        """Of all replicas."""
        return self.replicas * self.tensor_parallel


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One server of the uniform cluster: an island of a host."""

    server_class: int
    host: int
    island: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformCluster:
    """So many equal servers for one pipeline."""

    costs: CostModel
    """Of the variant's share."""
    stages: StageCostModel
    """Of stages on the equal servers."""
    slots: tuple[Slot, ...]
    """The real servers in the cluster's order."""
    devices_per_server: int
    memory_bytes: float
    """Least of any device."""
    inside: Link
    """Between devices of a server: the slowest fabric."""
    between: Link
    """From a server to another one: the slowest way, through interfaces, network and bridges."""

    @property
    def num_servers(self) -> int:
        """Islands of hosts."""
        return len(self.slots)

    @property
    def num_devices(self) -> int:
        """In all."""
        return self.num_servers * self.devices_per_server

    @property
    def most_servers_per_stage(self) -> int:
        """So many servers can a stage take whole, wherever they are: any number if all are alike, else one."""
        return len(self.slots) if self.are_alike(0, self.num_servers) else 1

    def stage_costs(self, group: Group, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints) -> StageCosts:
        """Costs of stages [start, stop) on a group of the slowest devices, each of shape (n,).

        Raises
        ------
        ValueError
            If the group is larger than a server and not several whole ones.
        """
        placement = self._placement(group, Slot(server_class=0, host=0, island=0))
        return self.stages.stages(placement, micro_batch=micro_batch, recompute=recompute, start=start, stop=stop)

    def intervals(self, variant: Variant, group: Group) -> Intervals:
        """Every stage of a variant on a group of the slowest devices."""
        problem = self.costs.problem
        start, stop = np.triu_indices(problem.model.num_layers + 1, 1)
        costs = (
            (mode, self.stage_costs(group, micro_batch=variant.micro_batch, recompute=mode, start=start, stop=stop))
            for mode in RECOMPUTE_MODES[problem.job.recompute]
        )
        return Intervals(num_layers=problem.model.num_layers, modes=tuple(costs), limit_bytes=self.memory_bytes)

    def replicas(self, micro_batch: int) -> tuple[int, ...]:
        """How many replicas of one device each a stage may have: within a server, or on whole servers."""
        return tuple(
            number
            for number in range(1, self.num_devices + 1)
            if (number <= self.devices_per_server or number % self.devices_per_server == 0)
            and self.costs.problem.job.allows_replicas(number, micro_batch)
        )

    def seats(self, groups: Sequence[Group], *, opens: Sequence[bool] = ()) -> tuple[Seat, ...] | None:
        """Seats of consecutive groups, server after server; None if the servers do not suffice.

        A group that does not fit on what is left of a server begins the next one, and a group of
        several servers the next that are whole hosts of one class.

        Parameters
        ----------
        opens
            For every group, whether to begin a server even where the one before has devices left;
            by default none does.
        """
        seats, server, used = list[Seat](), 0, 0
        for group, fresh in zip(groups, opens or (False,) * len(groups), strict=True):
            if used and (fresh or used + group.num_devices > self.devices_per_server):
                server, used = server + 1, 0
            width = max(1, group.num_devices // self.devices_per_server)
            while not self.are_alike(server, server + width):
                server += 1
                if server + width > self.num_servers:
                    return None
            starts_host = used == 0 and not self._is_same_host(server - 1, server)
            seats.append(Seat(placement=self._placement(group, self.slots[server]), opens=starts_host))
            server, used = server + width - 1, min(used + group.num_devices, self.devices_per_server)
        return tuple(seats)

    def are_alike(self, first: int, last: int) -> bool:
        """Whether a stage can span the servers [first, last): one, or whole hosts of one class."""
        slots = self.slots[first:last]
        if len(slots) < last - first:
            return False
        classes = {slot.server_class for slot in slots}
        return len(slots) == 1 or (
            len(classes) == 1 and len(self.costs.cluster.servers[slots[0].server_class].islands) == 1
        )

    def plan(
        self, variant: Variant, stops: Sequence[int], groups: Sequence[Group], *, opens: Sequence[bool] = ()
    ) -> Plan | None:
        """The plan whose stages end at these layers; None if the real servers or their memory do not suffice.

        Parameters
        ----------
        opens
            See :meth:`seats`.
        """
        seats = self.seats(groups, opens=opens)
        if seats is None:
            return None
        layout = tuple(
            Block(stop=stop, placement=seat.placement, opens=seat.opens)
            for stop, seat in zip(stops, seats, strict=True)
        )
        return assemble(self.costs, variant, layout)

    def _placement(self, group: Group, slot: Slot) -> Placement:
        num_hosts, rest = divmod(group.num_devices, self.devices_per_server)
        if num_hosts >= 1 and rest:
            raise ValueError(f"{group} is neither part of a server of {self.devices_per_server} nor whole servers")
        return Placement(
            server_class=slot.server_class,
            island=slot.island,
            num_hosts=max(1, num_hosts),
            replicas=group.replicas,
            tensor_parallel=group.tensor_parallel,
        )

    def _is_same_host(self, first: int, second: int) -> bool:
        if first < 0:
            return False
        one, other = self.slots[first], self.slots[second]
        return (one.server_class, one.host) == (other.server_class, other.host)


def uniform_cluster(costs: CostModel, solver: str) -> UniformCluster:
    """What one pipeline has, seen as equal servers.

    Parameters
    ----------
    costs
        Of the variant's share.
    solver
        Name of the planner, for the message.

    Raises
    ------
    UnsupportedError
        If the servers, or the islands in them, do not all have equally many devices.
    """
    cluster = costs.cluster
    sizes = {island.count for server in cluster.servers for island in server.islands}
    if len(sizes) > 1:
        raise UnsupportedError(
            f"{solver} plans for servers with equally many devices of one kind; "
            f"cluster {cluster.name!r} has {', '.join(map(str, sorted(sizes)))}"
        )
    slots = tuple(
        Slot(server_class=index, host=host, island=island)
        for index, server in enumerate(cluster.servers)
        for host in range(server.count)
        for island in range(len(server.islands))
    )
    equal = _equal_servers(costs, slots)
    (server,) = equal.servers
    return UniformCluster(
        costs=costs,
        stages=StageCostModel(costs.problem, _equal_share(costs.share), equal),
        slots=slots,
        devices_per_server=sizes.pop(),
        memory_bytes=equal.device_types[0].memory_bytes,
        inside=server.islands[0].fabric,
        between=equal.network,
    )


def uniform_variants(
    search: Search, solver: str, *, schedules: Sequence[Schedule]
) -> list[tuple[Variant, UniformCluster]]:
    """Every variant of these schedules whose pipelines each have equal servers; those with the fewest devices first.

    Raises
    ------
    UnsupportedError
        If the job allows none of the schedules, or if no share of the cluster consists of equal servers.
    """
    problem, found, unequal = search.problem, list[tuple[Variant, UniformCluster]](), list[UnsupportedError]()
    if not set(schedules) & set(problem.job.schedules):
        known, allowed = ", ".join(schedules), ", ".join(problem.job.schedules)
        raise UnsupportedError(f"{solver} knows schedule {known} only, and the job allows {allowed}: allow {known}")
    for variant in problem.variants:
        if variant.schedule in schedules:
            try:
                found.append((variant, uniform_cluster(search.costs.of(variant.share), solver)))
            except UnsupportedError as fault:
                unequal.append(fault)
    if not found:
        raise unequal[0]
    return sorted(found, key=lambda pair: pair[1].num_devices)


def require_single_devices(problem: Problem, solver: str) -> None:
    """Accept jobs that allow stages without tensor parallelism, for a planner that knows no others.

    Raises
    ------
    UnsupportedError
        If the job does not.
    """
    if 1 not in problem.tensor_parallel_degrees:
        degrees = ", ".join(map(str, problem.tensor_parallel_degrees))
        raise UnsupportedError(
            f"{solver} knows no tensor parallelism, and the job asks for a tensor_parallel of {degrees}: allow 1"
        )


def _equal_servers(costs: CostModel, slots: Sequence[Slot]) -> Cluster:
    """A cluster of one class of servers; measured all-reduces are those of the slowest devices' island."""
    cluster = costs.cluster
    islands = [island for server in cluster.servers for island in server.islands]
    slot = max(dict.fromkeys(replace(slot, host=0) for slot in slots), key=lambda slot: _whole_model_s(costs, slot))
    island = replace(
        cluster.servers[slot.server_class].islands[slot.island],
        fabric=_slowest([island.fabric for island in islands]),
        shared=any(island.shared for island in islands),
    )
    memory_bytes = min(cluster.device_type(island.device_type).memory_bytes for island in islands)
    return Cluster(
        name=f"{cluster.name} with equal servers",
        device_types=(replace(cluster.device_type(island.device_type), memory_bytes=memory_bytes),),
        servers=(Server(name="server", islands=(island,), count=len(slots)),),
        network=_slowest(_ways(cluster, costs.share)),
    )


def _equal_share(share: Share) -> Share:
    """The same for the only class: rings of pipelines leave the hosts if they do in any class."""
    return WHOLE if share == WHOLE else replace(share, host_splits=(max(share.host_splits),))


def _whole_model_s(costs: CostModel, slot: Slot) -> float:
    """Forward and backward of one sample through all layers on one device."""
    placement = Placement(server_class=slot.server_class, island=slot.island)
    cost = costs.stage(placement, micro_batch=1, recompute=False, start=0, stop=costs.problem.model.num_layers)
    return float(cost.forward_s[0] + cost.backward_s[0])


def _ways(cluster: Cluster, share: Share) -> list[Link]:
    """All ways from one server to another, hosts and islands of one host alike, those of other pipelines included."""
    pairs = combinations_with_replacement(range(len(cluster.servers)), 2)
    between_hosts = [
        link_between_hosts(cluster, (first, 1), (second, 1))
        for first, second in pairs
        if first != second or cluster.servers[first].count > 1 or share.host_split(first) > 1
    ]
    bridges = [
        link_within_host(cluster, index, first, second)
        for index, server in enumerate(cluster.servers)
        for first, second in combinations_with_replacement(range(len(server.islands)), 2)
        if first != second
    ]
    return between_hosts + bridges


def _slowest(links: Sequence[Link]) -> Link:
    link = UNLIMITED
    for other in links:
        link = slowest(link, other)
    return link
