"""Clusters of any size: `pods:TYPES:DEVICES`, for example `pods:2:16`.

Servers hold four devices of one type each, fewer where there would not be a server of every type. The
servers are dealt out evenly to the types, the first types get what is left over.
"""

from benchmarks.problems.described_clusters import PCIE, usual_links
from stagecut.models.clusters.device_types import device_type
from stagecut.models.clusters.links import SWITCH
from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.checks import require

KINDS = tuple(
    (device_type(name), *usual_links(name))
    for name in ("a100-40", "v100-16", "h100-80", "rtx-3090", "a100-40-pcie", "t4")
)
"""Device type, fabric and network interface of each kind of server."""
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
        network=SWITCH,
    )


def _server(index: int, *, count: int, devices: int) -> Server:
    kind, fabric, nic = KINDS[index]
    island = Island(device_type=kind.name, count=devices, fabric=fabric, shared=fabric in PCIE)
    return Server(name=kind.name, count=count, islands=(island,), nic=nic)
