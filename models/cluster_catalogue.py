"""All clusters of the catalogue, by name."""

from dataclasses import dataclass

from stagecut.models.clusters import mixed, uniform
from stagecut.models.naming import unknown_name
from stagecut.planner.core.cluster import Cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterEntry:
    """A cluster and a one-line summary."""

    cluster: Cluster
    summary: str


ENTRIES = (
    ClusterEntry(
        cluster=mixed.HETPIPE_16,
        summary="four servers of four GPUs each: TITAN V, TITAN RTX, RTX 2060, Quadro P4000 (Park et al., ATC 2020)",
    ),
    ClusterEntry(cluster=uniform.COMMODITY_32, summary="eight servers of four RTX 3090 on PCIe, 100 Gb/s Ethernet"),
    ClusterEntry(cluster=uniform.DGX_A100_16, summary="two DGX A100 servers of eight A100-40"),
    ClusterEntry(cluster=uniform.H100_8, summary="one server of eight H100-80"),
    ClusterEntry(cluster=mixed.A100_V100_32, summary="two servers of eight A100-40, two of eight V100-16"),
    ClusterEntry(cluster=mixed.A100_V100_512, summary="16 servers of eight A100-40, 48 of eight V100-16"),
    ClusterEntry(
        cluster=mixed.THREE_GENERATIONS_64,
        summary="two servers of eight each: H100, A100, V100 and T4, with interfaces from 400 down to 25 Gb/s",
    ),
    ClusterEntry(cluster=mixed.MIXED_SERVER_8, summary="two servers that each hold two A100-40 and two T4 on PCIe"),
    ClusterEntry(cluster=uniform.CPU_2, summary="two processor cores of one machine, for experiments"),
)


def cluster_names() -> tuple[str, ...]:
    """Names that :func:`build_cluster` knows."""
    return tuple(entry.cluster.name for entry in ENTRIES)


def cluster_entry(name: str) -> ClusterEntry:
    """The entry of that name.

    Raises
    ------
    BadInputError
        If there is none; the nearest name is suggested.
    """
    for entry in ENTRIES:
        if entry.cluster.name == name:
            return entry
    raise unknown_name("cluster", name, cluster_names())


def build_cluster(name: str) -> Cluster:
    """A cluster of the catalogue.

    Raises
    ------
    BadInputError
        If the name is unknown.
    """
    return cluster_entry(name).cluster


def describe_cluster(name: str) -> str:
    """One line on the cluster.

    Raises
    ------
    BadInputError
        If the name is unknown.
    """
    return cluster_entry(name).summary
