"""Servers, their devices and the links between them."""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import overload

import numpy as np

from stagecut.planner.core.curve import Points, last_slope, require_points, seconds_at, stretched
from stagecut.planner.core.messages.checks import (
    require,
    require_count,
    require_distinct,
    require_non_negative,
    require_positive,
)
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.precision import Precision

MAX_DEVICES = 100_000
"""Limit for a whole cluster."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A link: seconds = latency_s + bytes / bandwidth_bytes_per_s, or as measured."""

    bandwidth_bytes_per_s: float
    """Bytes per second per direction; infinity: unlimited. With a table of one point, it applies to larger messages."""
    latency_s: float = 0.0
    source: str = ""
    """Source of the figures."""
    table: Points = ()
    """Measured (bytes, seconds) of one message from end to end; overrides the other figures."""

    def __post_init__(self) -> None:
        require_positive("link", "bandwidth_bytes_per_s", self.bandwidth_bytes_per_s, finite=False)
        require_non_negative("link", "latency_s", self.latency_s)
        require_points("link", self.table, least=0)

    @property
    def is_unlimited(self) -> bool:
        """Whether more bandwidth would make no difference."""
        return not self.table and self.bandwidth_bytes_per_s == float("inf")

    @property
    def large_message_bytes_per_s(self) -> float:
        """Marginal bandwidth of large messages: that of a table's last segment."""
        if len(self.table) < 2:
            return self.bandwidth_bytes_per_s
        slope = last_slope(self.table)
        return 1 / slope if slope > 0 else float("inf")

    @overload
    def transfer_s(self, num_bytes: float) -> float: ...
    @overload
    def transfer_s(self, num_bytes: Floats) -> Floats: ...
    def transfer_s(self, num_bytes: float | Floats) -> float | Floats:
        """Seconds that a message of that size takes; elementwise for arrays.

        A table is interpolated linearly and extrapolated along its last segment, or at the bandwidth if it has a
        single point; no message takes less than the smallest one measured.
        """
        if not self.table:
            return self.latency_s + num_bytes / self.bandwidth_bytes_per_s
        seconds = seconds_at(self.table, num_bytes, 1 / self.large_message_bytes_per_s)
        return seconds if isinstance(num_bytes, np.ndarray) else float(seconds)

    def scaled(self, times: float = 1.0, *, over: float = 1.0) -> "Link":
        """The link with times / over of its bandwidth and the same latency."""
        return replace(
            self,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s * times / over,
            table=stretched(self.table, times, over),
        )


UNLIMITED = Link(bandwidth_bytes_per_s=float("inf"))


def slowest(first: Link, second: Link) -> Link:
    """A link no faster than either: the lower bandwidth with the higher latency, or the longer times of tables."""
    sizes = sorted({num_bytes for link in (first, second) for num_bytes, _ in link.table})
    bandwidth_bytes_per_s = min(first.large_message_bytes_per_s, second.large_message_bytes_per_s)
    latency_s = max(first.latency_s, second.latency_s)
    if not sizes:
        return Link(bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s)
    table = [(num_bytes, max(first.transfer_s(num_bytes), second.transfer_s(num_bytes))) for num_bytes in sizes]
    # One more point, so that the last segment is as steep as the steeper of the two.
    beyond_bytes, (last_bytes, last_s) = 2 * sizes[-1] + 1, table[-1]
    table.append((beyond_bytes, last_s + (beyond_bytes - last_bytes) / bandwidth_bytes_per_s))
    return Link(bandwidth_bytes_per_s=bandwidth_bytes_per_s, latency_s=latency_s, table=tuple(table))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceType:
    """A kind of GPU (or CPU)."""

    name: str
    """Name, unique within the cluster; measured times in a profile refer to it."""
    peak_flops_per_s: tuple[tuple[Precision, float], ...]
    """Peak floating-point operations per second, by precision; not needed if the profile has measured times."""
    memory_bytes: float
    """Memory available for training in bytes; may be unlimited."""
    memory_bandwidth_bytes_per_s: float = float("inf")
    """Memory bandwidth in bytes per second; may be unlimited."""
    efficiency: float = 1.0
    """Fraction of the peak that large kernels reach, above 0 and at most 1."""
    launch_s: float = 0.0
    """Fixed overhead in seconds per layer and direction, whatever the size: kernel launches."""
    price_per_hour: float | None = None
    """Price of one device and hour in any currency, the same for the whole cluster; None: unknown."""
    source: str = ""
    """Source of the figures."""

    def __post_init__(self) -> None:
        owner = f"device type {self.name!r}"
        require_non_negative(owner, "price_per_hour", self.price_per_hour or 0.0)
        for _, flops in self.peak_flops_per_s:
            require_positive(owner, "peak_flops_per_s", flops)
        require_distinct(owner, "precisions", (precision for precision, _ in self.peak_flops_per_s))
        require_positive(owner, "memory_bytes", self.memory_bytes, finite=False)
        require_positive(owner, "memory_bandwidth_bytes_per_s", self.memory_bandwidth_bytes_per_s, finite=False)
        require(0 < self.efficiency <= 1, owner, "efficiency", "above 0 and at most 1", self.efficiency)
        require_non_negative(owner, "launch_s", self.launch_s)

    def flops_per_s(self, precision: Precision) -> float | None:
        """Peak rate in one precision, None if not stated."""
        return dict(self.peak_flops_per_s).get(precision)


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduceTable:
    """Measured all-reduces among some devices of an island whose fabric is otherwise idle."""

    num_devices: int
    table: Points
    """At least two points (bytes per device, seconds)."""

    def __post_init__(self) -> None:
        require(self.num_devices >= 2, "all-reduce", "num_devices", "at least 2", self.num_devices)
        require_points(f"all-reduce among {self.num_devices}", self.table, least=2)

    def seconds(self, num_bytes: Floats) -> Floats:
        """Seconds for that many bytes per device, looked up like those of a :class:`Link`."""
        return seconds_at(self.table, num_bytes, last_slope(self.table))

    def scaled(self, times: float = 1.0, *, over: float = 1.0) -> "AllReduceTable":
        """The table for a fabric with times / over of the bandwidth: see :meth:`Link.scaled`."""
        return replace(self, table=stretched(self.table, times, over))


@dataclass(frozen=True, slots=True, kw_only=True)
class Island:
    """Identical devices inside one server behind one fabric."""

    device_type: str
    """Name of one of the cluster's device types."""
    count: int
    """Number of devices."""
    fabric: Link = UNLIMITED
    """Link between two devices of the island; unlimited by default."""
    shared: bool = False
    """True: one root complex that all transfers queue for. False: a switch, with a separate path for each pair."""
    all_reduce: tuple[AllReduceTable, ...] = ()
    """One table per number of devices; other numbers are estimated by a ring over the fabric."""

    def __post_init__(self) -> None:
        owner = f"island of {self.device_type}"
        require_count(owner, "count", self.count)
        require_distinct(owner, "numbers of devices of all_reduce", (table.num_devices for table in self.all_reduce))

    def all_reduce_among(self, num_devices: int) -> AllReduceTable | None:
        """The table measured among that many devices, if there is one."""
        return next((table for table in self.all_reduce if table.num_devices == num_devices), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A class of identical hosts, each with one network interface."""

    name: str
    """Unique name; if there are several hosts, they are numbered from 0: name-0, name-1, ..."""
    islands: tuple[Island, ...]
    """Groups of identical devices."""
    count: int = 1
    """Number of identical hosts."""
    nic: Link = UNLIMITED
    """Network interface of each host, without a table, since tables cover whole paths; unlimited by default."""
    bridge: Link | None = None
    """Link between the islands; None: the slowest fabric of the server."""
    price_per_hour: float | None = None
    """Price of one whole host and hour, in place of those of its devices; None: the devices' prices hold."""

    def __post_init__(self) -> None:
        owner = f"server {self.name!r}"
        require(bool(self.name), "server", "name", "not empty", self.name)
        require_count(owner, "count", self.count)
        require(len(self.islands) > 0, owner, "islands", "not empty", ())
        require_non_negative(owner, "price_per_hour", self.price_per_hour or 0.0)
        require(not self.nic.table, owner, "nic", "without a table; tables belong to the network", self.nic)

    @property
    def num_devices(self) -> int:
        """Number of devices per host."""
        return sum(island.count for island in self.islands)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOverride:
    """The link between two server classes, in place of the default."""

    servers: tuple[str, str]
    link: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One device of the cluster."""

    name: str
    """`server/index`, for example `v100-3/0`."""
    device_type: str
    server_class: int
    """Index into `Cluster.servers`."""
    host: int
    """Index among the identical hosts of the class."""
    island: int
    """Index into `Server.islands`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """All servers and the network between them."""

    name: str
    """Name of the cluster."""
    device_types: tuple[DeviceType, ...]
    """Kinds of devices in the servers."""
    servers: tuple[Server, ...]
    """Classes of identical servers."""
    network: Link = UNLIMITED
    """Link between any two hosts, in addition to their interfaces (a table includes them); unlimited by default."""
    overrides: tuple[NetworkOverride, ...] = ()
    """Pairs of server classes with a different network between them."""

    def __post_init__(self) -> None:
        owner = f"cluster {self.name!r}"
        require(len(self.servers) > 0, owner, "servers", "not empty", ())
        require_distinct(owner, "device type names", (kind.name for kind in self.device_types))
        require_distinct(owner, "server names", (server.name for server in self.servers))
        types = {kind.name for kind in self.device_types}
        names = {server.name for server in self.servers}
        for server in self.servers:
            for kind in (island.device_type for island in server.islands):
                require(kind in types, f"server {server.name!r}", "device_type", f"one of {sorted(types)}", kind)
        for override in self.overrides:
            for name in override.servers:
                require(name in names, owner, "override", f"between servers of {sorted(names)}", name)
        numbered = (host for s in self.servers if s.count > 1 for host in _host_names(s.name, s.count))
        require_distinct(owner, "names of servers and hosts", (*(server.name for server in self.servers), *numbered))

    def device_type(self, name: str) -> DeviceType:
        """The device type of that name; raises a BadInputError if there is none."""
        found = next((kind for kind in self.device_types if kind.name == name), None)
        if found is None:
            raise BadInputError(f"cluster {self.name!r}: unknown device type {name!r}")
        return found

    def host_names(self, server_class: int) -> tuple[str, ...]:
        """Names of the hosts of one class: the class name, numbered if there are several hosts."""
        server = self.servers[server_class]
        return _host_names(server.name, server.count)

    def devices(self) -> tuple[Device, ...]:
        """Every device, ordered by class, host and island."""
        return tuple(
            Device(
                name=f"{host_name}/{slot}",
                device_type=server.islands[island].device_type,
                server_class=index,
                host=host,
                island=island,
            )
            for index, server in enumerate(self.servers)
            for host, host_name in enumerate(self.host_names(index))
            for slot, island in enumerate(i for i, part in enumerate(server.islands) for _ in range(part.count))
        )

    @property
    def num_devices(self) -> int:
        """Number of devices of all hosts."""
        return sum(server.count * server.num_devices for server in self.servers)

    @property
    def has_tables(self) -> bool:
        """Whether any link or all-reduce is given by measurements."""
        paths = (self.network, *(override.link for override in self.overrides))
        bridges = (server.bridge for server in self.servers if server.bridge is not None)
        islands = [island for server in self.servers for island in server.islands]
        fabrics = (island.fabric for island in islands)
        return any(link.table for link in (*paths, *bridges, *fabrics)) or any(i.all_reduce for i in islands)

    def network_between(self, first: int, second: int) -> Link:
        """The network link between hosts of two classes; it excludes the interfaces unless it has a table."""
        pair = {self.servers[first].name, self.servers[second].name}
        return next((override.link for override in self.overrides if set(override.servers) == pair), self.network)


@lru_cache(maxsize=256)
def _host_names(server: str, count: int) -> tuple[str, ...]:
    return (server,) if count == 1 else tuple(f"{server}-{index}" for index in range(count))
