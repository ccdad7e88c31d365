"""Clusters of one device type."""

from stagecut.models.clusters import device_types, links
from stagecut.planner.core.cluster import Cluster, Island, Server

COMMODITY_32 = Cluster(
    name="commodity-32",
    device_types=(device_types.RTX_3090,),
    servers=(
        Server(
            name="rtx",
            count=8,
            islands=(Island(device_type="rtx-3090", count=4, fabric=links.PCIE_3, shared=True),),
            nic=links.ETHERNET_100G,
        ),
    ),
    network=links.SWITCH,
)
DGX_A100_16 = Cluster(
    name="dgx-a100-16",
    device_types=(device_types.A100_40,),
    servers=(
        Server(
            name="dgx",
            count=2,
            islands=(Island(device_type="a100-40", count=8, fabric=links.NVSWITCH_A100),),
            nic=links.INFINIBAND_200G,
        ),
    ),
    network=links.SWITCH,
)
H100_8 = Cluster(
    name="h100-8",
    device_types=(device_types.H100_80,),
    servers=(
        Server(
            name="hgx",
            islands=(Island(device_type="h100-80", count=8, fabric=links.NVSWITCH_H100),),
            nic=links.INFINIBAND_400G,
        ),
    ),
    network=links.SWITCH,
)
CPU_2 = Cluster(
    name="cpu-2",
    device_types=(device_types.CPU_CORE,),
    servers=(
        Server(
            name="cpu",
            islands=(Island(device_type="cpu-core", count=2, fabric=links.SHARED_MEMORY, shared=True),),
            nic=links.ETHERNET_25G,
        ),
    ),
    network=links.SWITCH,
)
