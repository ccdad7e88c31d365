"""Clusters of several device types."""

from stagecut.models.clusters import device_types, links
from stagecut.planner.core.cluster import Cluster, Island, Link, Server


def _pcie_server(name: str, device_type: str, *, count: int, devices: int, nic: Link) -> Server:
    island = Island(device_type=device_type, count=devices, fabric=links.PCIE_3, shared=True)
    return Server(name=name, count=count, islands=(island,), nic=nic)


def _h100_server(*, count: int) -> Server:
    island = Island(device_type="h100-80", count=8, fabric=links.NVSWITCH_H100)
    return Server(name="h100", count=count, islands=(island,), nic=links.INFINIBAND_400G)


def _a100_server(*, count: int) -> Server:
    island = Island(device_type="a100-40", count=8, fabric=links.NVSWITCH_A100)
    return Server(name="a100", count=count, islands=(island,), nic=links.INFINIBAND_200G)


def _v100_server(*, count: int) -> Server:
    island = Island(device_type="v100-16", count=8, fabric=links.NVLINK_V100)
    return Server(name="v100", count=count, islands=(island,), nic=links.INFINIBAND_100G)


def _a100_v100(name: str, *, num_a100: int, num_v100: int) -> Cluster:
    return Cluster(
        name=name,
        device_types=(device_types.A100_40, device_types.V100_16),
        servers=(_a100_server(count=num_a100), _v100_server(count=num_v100)),
        network=links.SWITCH,
    )


_HETPIPE_TYPES = (device_types.TITAN_V, device_types.TITAN_RTX, device_types.RTX_2060, device_types.QUADRO_P4000)
HETPIPE_16 = Cluster(
    name="hetpipe-16",
    device_types=_HETPIPE_TYPES,
    servers=tuple(
        _pcie_server(kind.name, kind.name, count=1, devices=4, nic=links.INFINIBAND_56G) for kind in _HETPIPE_TYPES
    ),
    network=links.SWITCH,
)
A100_V100_32 = _a100_v100("a100-v100-32", num_a100=2, num_v100=2)
A100_V100_512 = _a100_v100("a100-v100-512", num_a100=16, num_v100=48)
THREE_GENERATIONS_64 = Cluster(
    name="three-generations-64",
    device_types=(device_types.H100_80, device_types.A100_40, device_types.V100_16, device_types.T4),
    servers=(
        _h100_server(count=2),
        _a100_server(count=2),
        _v100_server(count=2),
        _pcie_server("t4", "t4", count=2, devices=8, nic=links.ETHERNET_25G),
    ),
    network=links.SWITCH,
)
MIXED_SERVER_8 = Cluster(
    name="mixed-server-8",
    device_types=(device_types.A100_40_PCIE, device_types.T4),
    servers=(
        Server(
            name="mixed",
            count=2,
            islands=(
                Island(device_type="a100-40-pcie", count=2, fabric=links.PCIE_4, shared=True),
                Island(device_type="t4", count=2, fabric=links.PCIE_3, shared=True),
            ),
            nic=links.ETHERNET_100G,
            bridge=links.PCIE_3,
        ),
    ),
    network=links.SWITCH,
)
