"""All clusters of the catalogue, by name, and others by description."""

from stagecut.models.clusters.description import described, is_described
from stagecut.models.clusters.entries import ENTRIES, ClusterEntry
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.names import unknown_name


def cluster_names() -> tuple[str, ...]:
    """Names of the clusters of the catalogue."""
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
    """A cluster of the catalogue, or of a description; see :mod:`stagecut.models.clusters.description`.

    Raises
    ------
    BadInputError
        If the name, or one in the description, is unknown.
    """
    return described(name) if is_described(name) else cluster_entry(name).cluster


def describe_cluster(name: str) -> str:
    """One line on the cluster.

    Raises
    ------
    BadInputError
        If the name is unknown.
    """
    return "as described" if is_described(name) else cluster_entry(name).summary
