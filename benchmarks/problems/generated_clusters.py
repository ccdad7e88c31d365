"""Clusters of any size: `pods:TYPES:DEVICES`, for example `pods:2:16`.

Servers hold four devices of one type each, fewer where there would not be a server of every type. The
servers are dealt out evenly to the types, the first types get what is left over.
"""

from stagecut.models.clusters import device_types, links
from stagecut.planner.core.checks import require
from stagecut.planner.core.cluster import Cluster, Island, Server

KINDS = (
    (device_types.A100_40, links.NVSWITCH_A100, links.INFINIBAND_200G),
    (device_types.V100_16, links.NVLINK_V100, links.INFINIBAND_100G),
    (device_types.H100_80, links.NVSWITCH_H100, links.INFINIBAND_400G),
    (device_types.RTX_3090, links.PCIE_3, links.ETHERNET_100G),
    (device_types.A100_40_PCIE, links.PCIE_4, links.ETHERNET_100G),
    (device_types.T4, links.PCIE_3, links.ETHERNET_25G),
)
"""Device type, fabric and network interface of each kind of server."""
PCIE = (links.PCIE_3, links.PCIE_4)
"""Fabrics that all devices of a server share."""
PER_SERVER = 4
NAME = "pods"


def is_generated(name: str) -> bool:
    """Whether a name denotes such a cluster."""
    return name.partition(":")[0] == NAME


def pods(name: str) -> Cluster:
    """The cluster of this name.

    Raises
    ------
    BadInputError
        If there are more types than known, or the devices do not fill servers of equal size.
    """
    num_types, num_devices = (int(field) for field in name.split(":")[1:])
    per_server = max(1, min(PER_SERVER, num_devices // num_types))
    num_servers = num_devices // per_server
    require(1 <= num_types <= min(len(KINDS), num_servers), name, "types", "from 1 to 6, a server of each", num_types)
    require(num_servers * per_server == num_devices, name, "devices", f"a multiple of {per_server}", num_devices)
    each, more = divmod(num_servers, num_types)
    return Cluster(
        name=name,
        device_types=tuple(kind for kind, _, _ in KINDS[:num_types]),
        servers=tuple(_server(index, count=each + (index < more), devices=per_server) for index in range(num_types)),
        network=links.SWITCH,
    )


def _server(index: int, *, count: int, devices: int) -> Server:
    kind, fabric, nic = KINDS[index]
    island = Island(device_type=kind.name, count=devices, fabric=fabric, shared=fabric in PCIE)
    return Server(name=kind.name, count=count, islands=(island,), nic=nic)
