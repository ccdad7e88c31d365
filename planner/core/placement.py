"""Where a stage runs: server class, island, hosts and replicas."""

from collections.abc import Mapping
from dataclasses import dataclass

from stagecut.planner.core.cluster import Cluster, Device
from stagecut.planner.core.messages.checks import require


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """The device group of a stage, up to renaming identical hosts and devices.

    Either `replicas` x `tensor_parallel` devices of one island of one host, or all devices of
    `num_hosts` whole hosts. The devices that share a replica are on one host.
    """

    server_class: int
    island: int
    num_hosts: int = 1
    replicas: int = 1
    tensor_parallel: int = 1
    sharding: int | None = None
    """Index into `MEMORY_PRICES` where those that share a replica divide each operator in its own way, the cheapest at
    that price; None: by heads, width or vocabulary, and everything between along the tokens."""

    @property
    def devices_per_host(self) -> int:
        """Devices used on each host."""
        return self.replicas * self.tensor_parallel // self.num_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceGroup:
    """A placement on specific hosts of the cluster."""

    placement: Placement
    hosts: tuple[int, ...]
    """Indices of the hosts within their class."""


def device_group_of(
    cluster: Cluster, names: tuple[str, ...], known: Mapping[str, Device], *, tensor_parallel: int = 1
) -> DeviceGroup:
    """Recover the placement of a stage from the names of its devices.

    `known` has every device of the cluster by name; `tensor_parallel` devices share each replica.

    Raises
    ------
    BadInputError
        If a name is unknown, if the devices are neither in one island of one host nor all devices of
        hosts of one class with a single island, or if they do not form whole replicas on every host.
    """
    for name in names:
        require(name in known, "stage", "devices", f"devices of cluster {cluster.name!r}", name)
    devices = [known[name] for name in names]
    islands = {(device.server_class, device.island) for device in devices}
    require(len(islands) == 1, "stage", "devices", "in one island, or on whole hosts of one class", names)
    server_class, island = islands.pop()
    hosts = tuple(sorted({device.host for device in devices}))
    server = cluster.servers[server_class]
    whole = len(devices) == len(hosts) * server.num_devices
    require(len(hosts) == 1 or whole, "stage", "devices", "on one host, or all devices of several hosts", names)
    per_host = len(devices) // len(hosts)
    rule = f"such that the {tensor_parallel} of each replica are on one host"
    require(per_host % tensor_parallel == 0, "stage", "devices", rule, names)
    placement = Placement(
        server_class=server_class,
        island=island,
        num_hosts=len(hosts),
        replicas=len(devices) // tensor_parallel,
        tensor_parallel=tensor_parallel,
    )
    return DeviceGroup(placement=placement, hosts=hosts)
