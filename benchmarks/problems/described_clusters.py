"""Clusters written out in a line, server class by server class: `16x8:h100-80,16x8:a100-40`.

20x4:a100-40         20 servers of 4 devices of that type of the catalogue, with the links they usually have
5x3:v100-16@10       the same with an interface of 10 Gb/s
4x8:t4/8             with 8 GiB of memory to a device
2x2:t4+2:v100-16     two islands in a server, with a bridge as fast as the slower fabric
"""

import re
from dataclasses import replace

from stagecut.models.clusters.device_types import device_type, known_type
from stagecut.models.clusters.links import SWITCH, link
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.units import GBIT_PER_S, GIB, US

CLASS = re.compile(r"(\d+)x([^@]+)(?:@(\d+))?")
ISLAND = re.compile(r"(\d+):([\w-]+)(?:/(\d+))?")
LATENCY_S = 20 * US
"""Of an interface whose speed is given: that of Ethernet in the catalogue."""
PCIE = (link("pcie3x16"), link("pcie4x16"))
"""Fabrics that all devices of an island share."""
KINDS = {
    name: device_type(name)
    for name in ("titan-v", "titan-rtx", "rtx-3090", "a100-40", "a100-40-pcie", "h100-80", "v100-16", "t4")
}


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
    return Cluster(name=name, device_types=tuple(kinds.values()), servers=servers, network=SWITCH)


def _server(text: str, index: int) -> Server:
    found = CLASS.fullmatch(text)
    require(found is not None, text, "servers", "COUNTxDEVICES:TYPE, as in 2x8:t4", text)
    assert found is not None
    count, inside, speed = found.groups()
    islands = tuple(_island(part) for part in inside.split("+"))
    slowest = min(
        (usual_links(_parts(part)[1])[1] for part in inside.split("+")), key=lambda link: link.bandwidth_bytes_per_s
    )
    nic = slowest if speed is None else _interface(int(speed))
    return Server(name=f"class{index}", count=int(count), islands=islands, nic=nic)


def _interface(gbit_per_s: int) -> Link:
    return Link(bandwidth_bytes_per_s=gbit_per_s * GBIT_PER_S, latency_s=LATENCY_S)


def _island(text: str) -> Island:
    count = int(_parts(text)[0])
    fabric, _ = usual_links(_parts(text)[1])
    return Island(device_type=_kind(text).name, count=count, fabric=fabric, shared=fabric in PCIE)


def usual_links(name: str) -> tuple[Link, Link]:
    """Fabric and interface that are usual for a type, but PCI Express 3.0 for RTX 3090, as in `commodity-32`."""
    known = known_type(name)
    return link("pcie3x16" if known.kind.name == "rtx-3090" else known.fabric), link(known.interface)


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
