"""Clusters written out in a line, server class by server class: `16x8:h100-80,16x8:a100-40`.

20x4:a100-40         20 servers of 4 devices of that type of the catalogue, with the links they usually have
5x3:v100-16@10       the same with an interface of 10 Gb/s
4x8:t4/8             with 8 GiB of memory to a device
2x2:t4+2:v100-16     two islands in a server, with a bridge as fast as the slower fabric
"""

import re
from dataclasses import replace

from stagecut.models.clusters import device_types, links
from stagecut.models.clusters.device_types import DEVICE_TYPES
from stagecut.planner.core.checks import require
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.units import GBIT_PER_S, GIB, US

CLASS = re.compile(r"(\d+)x([^@]+)(?:@(\d+))?")
ISLAND = re.compile(r"(\d+):([\w-]+)(?:/(\d+))?")
LATENCY_S = 20 * US
"""Of an interface whose speed is given: that of Ethernet in the catalogue."""
USUAL_LINKS = {
    device_types.H100_80.name: (links.NVSWITCH_H100, links.INFINIBAND_400G),
    device_types.A100_40.name: (links.NVSWITCH_A100, links.INFINIBAND_200G),
    device_types.V100_16.name: (links.NVLINK_V100, links.INFINIBAND_100G),
    device_types.A100_40_PCIE.name: (links.PCIE_4, links.ETHERNET_100G),
    device_types.RTX_3090.name: (links.PCIE_3, links.ETHERNET_100G),
    device_types.TITAN_RTX.name: (links.PCIE_3, links.INFINIBAND_56G),
    device_types.TITAN_V.name: (links.PCIE_3, links.INFINIBAND_56G),
    device_types.T4.name: (links.PCIE_3, links.ETHERNET_25G),
}
"""Fabric and interface of servers with devices of this type."""
PCIE = (links.PCIE_3, links.PCIE_4)
"""Fabrics that all devices of an island share."""
KINDS = {kind.name: kind for kind in DEVICE_TYPES if kind.name in USUAL_LINKS}


def is_described(name: str) -> bool:
    """Whether a name describes a cluster; those of the catalogue have no class of servers in them."""
    return CLASS.fullmatch(name.partition(",")[0]) is not None


def described(name: str) -> Cluster:
    """The cluster of this description.

    Raises
    ------
    BadInputError
        If it is not written as above, or names a device type without usual links.
    """
    classes = name.split(",")
    servers = tuple(_server(text, index) for index, text in enumerate(classes))
    kinds = {kind.name: kind for text in classes for kind in _kinds(text)}
    return Cluster(name=name, device_types=tuple(kinds.values()), servers=servers, network=links.SWITCH)


def _server(text: str, index: int) -> Server:
    found = CLASS.fullmatch(text)
    require(found is not None, text, "servers", "COUNTxDEVICES:TYPE, as in 2x8:t4", text)
    assert found is not None
    count, inside, speed = found.groups()
    islands = tuple(_island(part) for part in inside.split("+"))
    slowest = min((_links(part)[1] for part in inside.split("+")), key=lambda link: link.bandwidth_bytes_per_s)
    nic = slowest if speed is None else _interface(int(speed))
    return Server(name=f"class{index}", count=int(count), islands=islands, nic=nic)


def _interface(gbit_per_s: int) -> Link:
    return Link(bandwidth_bytes_per_s=gbit_per_s * GBIT_PER_S, latency_s=LATENCY_S)


def _island(text: str) -> Island:
    count = int(_parts(text)[0])
    fabric, _ = _links(text)
    return Island(device_type=_kind(text).name, count=count, fabric=fabric, shared=fabric in PCIE)


def _links(text: str) -> tuple[Link, Link]:
    return USUAL_LINKS[_parts(text)[1]]


def _kinds(text: str) -> list[DeviceType]:
    return [_kind(part) for part in text.partition("x")[2].partition("@")[0].split("+")]


def _kind(text: str) -> DeviceType:
    _, name, memory = _parts(text)
    kind = KINDS[name]
    return kind if memory is None else replace(kind, name=f"{name}/{memory}", memory_bytes=int(memory) * GIB)


def _parts(text: str) -> tuple[str, str, str | None]:
    """Number of devices, type, and GiB of memory."""
    found = ISLAND.fullmatch(text)
    require(found is not None, text, "island", "DEVICES:TYPE or DEVICES:TYPE/GIB", text)
    assert found is not None
    count, name, memory = found.groups()
    require(name in KINDS, text, "device type", f"one of {', '.join(KINDS)}", name)
    return count, name, memory
