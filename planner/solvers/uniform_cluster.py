"""The cluster as planners for identical devices see it: equal servers, every device as slow as the slowest.

Most published planners know one kind of device and one kind of server. Here they plan with the
slowest devices, the smallest memory and the slowest links there are; what they decide is laid over
the real servers in the cluster's order, and simulated with what these really are.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement

from planner.core.cluster import UNLIMITED, Cluster, Link, slowest
from planner.core.errors import UnsupportedError
from planner.core.placement import Placement
from planner.cost.cost_model import CostModel
from planner.cost.links import link_between_hosts, link_within_host
from planner.cost.plan_costs import Ints
from planner.cost.stage_costs import StageCosts
from planner.network.seating import Seat


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
    slots: tuple[Slot, ...]
    """In the cluster's order."""
    devices_per_server: int
    slowest_slot: Slot
    """Of the kind of device that takes longest for the whole model."""
    memory_bytes: float
    """Least of any device."""
    inside: Link
    """Between devices of a server: the slowest fabric."""
    between: Link
    """From a server to another one: the slowest way, through interfaces, network and bridges."""

    @property
    def num_devices(self) -> int:
        """In all."""
        return len(self.slots) * self.devices_per_server

    def stage_costs(self, group: Group, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints) -> StageCosts:
        """Costs of stages [start, stop) on a group of the slowest devices, each of shape (n,).

        Raises
        ------
        ValueError
            If the group is larger than a server and not several whole ones.
        """
        return self.costs.stages.stages(
            self._placement(group, self.slowest_slot),
            micro_batch=micro_batch,
            recompute=recompute,
            start=start,
            stop=stop,
        )

    def seats(self, groups: Sequence[Group]) -> tuple[Seat, ...] | None:
        """Seats of consecutive groups, server after server; None if the servers do not suffice.

        A group that does not fit on what is left of a server begins the next one.
        """
        seats, server, used = list[Seat](), 0, 0
        for group in groups:
            if used and used + group.num_devices > self.devices_per_server:
                server, used = server + 1, 0
            width = max(1, group.num_devices // self.devices_per_server)
            slots = self.slots[server : server + width]
            if len(slots) < width or not self._are_alike(slots):
                return None
            opens = used == 0 and not self._is_same_host(server - 1, server)
            seats.append(Seat(placement=self._placement(group, slots[0]), opens=opens))
            server, used = (server + width, 0) if width > 1 else (server, used + group.num_devices)
            if used == self.devices_per_server:
                server, used = server + 1, 0
        return tuple(seats)

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

    def _are_alike(self, slots: Sequence[Slot]) -> bool:
        """Whether a stage can span them: one server, or whole hosts of one class."""
        classes = {slot.server_class for slot in slots}
        return len(slots) == 1 or (
            len(classes) == 1 and len(self.costs.cluster.servers[slots[0].server_class].islands) == 1
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
    return UniformCluster(
        costs=costs,
        slots=slots,
        devices_per_server=sizes.pop(),
        slowest_slot=max(dict.fromkeys(slots), key=lambda slot: _whole_model_s(costs, slot)),
        memory_bytes=min(cluster.device_type(name).memory_bytes for name in _device_types(cluster)),
        inside=_slowest([island.fabric for server in cluster.servers for island in server.islands]),
        between=_slowest(_ways(cluster)),
    )


def _device_types(cluster: Cluster) -> set[str]:
    return {island.device_type for server in cluster.servers for island in server.islands}


def _whole_model_s(costs: CostModel, slot: Slot) -> float:
    """Forward and backward of one sample through all layers on one device."""
    placement = Placement(server_class=slot.server_class, island=slot.island)
    cost = costs.stage(placement, micro_batch=1, recompute=False, start=0, stop=costs.problem.model.num_layers)
    return float(cost.forward_s[0] + cost.backward_s[0])


def _ways(cluster: Cluster) -> list[Link]:
    """All ways from one server to another, hosts and islands of one host alike."""
    pairs = combinations_with_replacement(range(len(cluster.servers)), 2)
    between_hosts = [
        link_between_hosts(cluster, (first, 1), (second, 1))
        for first, second in pairs
        if first != second or cluster.servers[first].count > 1
    ]
    bridges = [
        link_within_host(cluster, i, 0, 1) for i, server in enumerate(cluster.servers) if len(server.islands) > 1
    ]
    return between_hosts + bridges


def _slowest(links: Sequence[Link]) -> Link:
    link = UNLIMITED
    for other in links:
        link = slowest(link, other)
    return link
