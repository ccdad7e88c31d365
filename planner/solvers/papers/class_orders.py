"""Orders in which a pipeline may pass through the server classes."""

import itertools

from stagecut.planner.core.cluster import Cluster

MOST_ORDERS = 24
"""All orders of up to four classes."""


def class_orders(cluster: Cluster) -> list[tuple[int, ...]]:
    """Permutations of the server classes, only the first of them where there are too many."""
    return list(itertools.islice(itertools.permutations(range(len(cluster.servers))), MOST_ORDERS))
