"""Links.

Bandwidths are the vendors', per direction, without losses to protocols and software. All latencies are assumptions. A
single interface represents the network of a host: in servers with several, the rail that serves a pair of devices.
"""

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.units import GB, GBIT_PER_S, US


def _link(bandwidth_bytes_per_s: float, latency_us: float, *, source: str) -> Link:
    return Link(
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        latency_s=latency_us * US,
        source=f"{source}; assumption: {latency_us:g} us latency",
    )


PCIE_3 = _link(15.75 * GB, 10, source="PCI-SIG, PCI Express 3.0 x16")
PCIE_4 = _link(31.5 * GB, 10, source="PCI-SIG, PCI Express 4.0 x16")
NVLINK_V100 = _link(
    50 * GB,
    5,
    source="NVIDIA DGX-1 white paper, two NVLinks of 25 GB/s; assumption: neighbours in the pipeline are so linked",
)
NVSWITCH_A100 = _link(300 * GB, 5, source="NVIDIA A100 data sheet, 600 GB/s over both directions")
NVSWITCH_H100 = _link(450 * GB, 5, source="NVIDIA H100 data sheet, 900 GB/s over both directions")
SHARED_MEMORY = _link(5 * GB, 50, source="assumption: copies through shared memory at 5 GB/s")

ETHERNET_25G = _link(25 * GBIT_PER_S, 20, source="IEEE 802.3by, 25 Gb/s Ethernet")
ETHERNET_100G = _link(100 * GBIT_PER_S, 20, source="IEEE 802.3ba, 100 Gb/s Ethernet")
INFINIBAND_56G = _link(56 * GBIT_PER_S, 5, source="InfiniBand FDR x4, 56 Gb/s")
INFINIBAND_100G = _link(100 * GBIT_PER_S, 5, source="InfiniBand EDR x4, 100 Gb/s, one of the rails of a server")
INFINIBAND_200G = _link(200 * GBIT_PER_S, 5, source="InfiniBand HDR x4, 200 Gb/s, one of the rails of a server")
INFINIBAND_400G = _link(400 * GBIT_PER_S, 5, source="InfiniBand NDR x4, 400 Gb/s, one of the rails of a server")

SWITCH = Link(
    bandwidth_bytes_per_s=float("inf"),
    source="assumption: a switch that never slows its ports, its latency counted with the interfaces",
)
