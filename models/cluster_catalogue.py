"""All clusters of the catalogue, by name."""

from stagecut.models.clusters.entries import ENTRIES, ClusterEntry
from stagecut.models.naming import unknown_name
from stagecut.planner.core.cluster import Cluster


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
