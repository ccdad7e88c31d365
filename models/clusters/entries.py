"""The clusters of the catalogue, each with a one-line summary."""

from dataclasses import dataclass

from stagecut.models.clusters import links
from stagecut.models.clusters.device_types import (
    A100_40,
    A100_40_PCIE,
    CPU_CORE,
    H100_80,
    QUADRO_P4000,
    RTX_2060,
    RTX_3090,
    T4,
    TITAN_RTX,
    TITAN_V,
    V100_16,
)
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntry:
    """A cluster and a one-line summary."""

    cluster: Cluster
    summary: str


def _entry(name: str, *servers: Server, kinds: tuple[DeviceType, ...], summary: str) -> ClusterEntry:
    cluster = Cluster(name=name, device_types=kinds, servers=servers, network=links.SWITCH)
    return ClusterEntry(cluster=cluster, summary=summary)


def _server(
    name: str, kind: DeviceType, *, count: int = 1, devices: int = 8, fabric: Link, shared: bool = False, nic: Link
) -> Server:
    island = Island(device_type=kind.name, count=devices, fabric=fabric, shared=shared)
    return Server(name=name, count=count, islands=(island,), nic=nic)


def _a100(name: str, count: int) -> Server:
    return _server(name, A100_40, count=count, fabric=links.NVSWITCH_A100, nic=links.INFINIBAND_200G)


def _h100(name: str, count: int) -> Server:
    return _server(name, H100_80, count=count, fabric=links.NVSWITCH_H100, nic=links.INFINIBAND_400G)


def _v100(name: str, count: int) -> Server:
    return _server(name, V100_16, count=count, fabric=links.NVLINK_V100, nic=links.INFINIBAND_100G)


def _pcie(name: str, kind: DeviceType, *, count: int = 1, devices: int = 4, nic: Link) -> Server:
    return _server(name, kind, count=count, devices=devices, fabric=links.PCIE_3, shared=True, nic=nic)


_HETPIPE_KINDS = (TITAN_V, TITAN_RTX, RTX_2060, QUADRO_P4000)
_MIXED_SERVER = Server(
    name="mixed",
    count=2,
    islands=(
        Island(device_type=A100_40_PCIE.name, count=2, fabric=links.PCIE_4, shared=True),
        Island(device_type=T4.name, count=2, fabric=links.PCIE_3, shared=True),
    ),
    nic=links.ETHERNET_100G,
    bridge=links.PCIE_3,
)
ENTRIES = (
    _entry(
        "hetpipe-16",
        *(_pcie(kind.name, kind, nic=links.INFINIBAND_56G) for kind in _HETPIPE_KINDS),
        kinds=_HETPIPE_KINDS,
        summary="four servers of four GPUs each: TITAN V, TITAN RTX, RTX 2060, Quadro P4000 (Park et al., ATC 2020)",
    ),
    _entry(
        "commodity-32",
        _pcie("rtx", RTX_3090, count=8, nic=links.ETHERNET_100G),
        kinds=(RTX_3090,),
        summary="eight servers of four RTX 3090 on PCIe, 100 Gb/s Ethernet",
    ),
    _entry("dgx-a100-16", _a100("dgx", 2), kinds=(A100_40,), summary="two DGX A100 servers of eight A100-40"),
    _entry("h100-8", _h100("hgx", 1), kinds=(H100_80,), summary="one server of eight H100-80"),
    _entry(
        "a100-v100-32",
        _a100("a100", 2),
        _v100("v100", 2),
        kinds=(A100_40, V100_16),
        summary="two servers of eight A100-40, two of eight V100-16",
    ),
    _entry(
        "a100-v100-512",
        _a100("a100", 16),
        _v100("v100", 48),
        kinds=(A100_40, V100_16),
        summary="16 servers of eight A100-40, 48 of eight V100-16",
    ),
    _entry(
        "three-generations-64",
        _h100("h100", 2),
        _a100("a100", 2),
        _v100("v100", 2),
        _pcie("t4", T4, count=2, devices=8, nic=links.ETHERNET_25G),
        kinds=(H100_80, A100_40, V100_16, T4),
        summary="two servers of eight each: H100, A100, V100 and T4, with interfaces from 400 down to 25 Gb/s",
    ),
    _entry(
        "mixed-server-8",
        _MIXED_SERVER,
        kinds=(A100_40_PCIE, T4),
        summary="two servers that each hold two A100-40 and two T4 on PCIe",
    ),
    _entry(
        "cpu-2",
        _server("cpu", CPU_CORE, devices=2, fabric=links.SHARED_MEMORY, shared=True, nic=links.ETHERNET_25G),
        kinds=(CPU_CORE,),
        summary="two processor cores of one machine, for experiments",
    ),
)
