"""The clusters of the catalogue, each with a one-line summary."""

from dataclasses import dataclass

from stagecut.models.clusters.description import described
from stagecut.planner.core.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntry:
    """A cluster and a one-line summary."""

    cluster: Cluster
    summary: str


def _entry(name: str, text: str, *server_names: str, summary: str) -> ClusterEntry:
    return ClusterEntry(cluster=described(text, name=name, server_names=server_names), summary=summary)


ENTRIES = (
    _entry(
        "hetpipe-16",
        "4 titan-v + 4 titan-rtx + 4 rtx-2060 + 4 quadro-p4000",
        summary="four servers of four GPUs each: TITAN V, TITAN RTX, RTX 2060, Quadro P4000 (Park et al., ATC 2020)",
    ),
    _entry(
        "commodity-32",
        "8x4 rtx-3090 pcie3x16 eth100",
        "rtx",
        summary="eight servers of four RTX 3090 on PCIe, 100 Gb/s Ethernet",
    ),
    _entry("dgx-a100-16", "2x8 a100-40", "dgx", summary="two DGX A100 servers of eight A100-40"),
    _entry("h100-8", "8 h100-80", "hgx", summary="one server of eight H100-80"),
    _entry(
        "a100-v100-32",
        "2x8 a100-40 + 2x8 v100-16",
        *("a100", "v100"),
        summary="two servers of eight A100-40, two of eight V100-16",
    ),
    _entry(
        "a100-v100-512",
        "16x8 a100-40 + 48x8 v100-16",
        *("a100", "v100"),
        summary="16 servers of eight A100-40, 48 of eight V100-16",
    ),
    _entry(
        "three-generations-64",
        "2x8 h100-80 + 2x8 a100-40 + 2x8 v100-16 + 2x8 t4",
        *("h100", "a100", "v100", "t4"),
        summary="two servers of eight each: H100, A100, V100 and T4, with interfaces from 400 down to 25 Gb/s",
    ),
    _entry(
        "mixed-server-8",
        "2x2 a100-40-pcie, 2 t4 eth100",
        "mixed",
        summary="two servers that each hold two A100-40 and two T4 on PCIe",
    ),
    _entry("cpu-2", "2 cpu-core", "cpu", summary="two processor cores of one machine, for experiments"),
)
