"""Prices of a cluster's devices and servers."""

from collections.abc import Mapping
from dataclasses import replace

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.errors import BadInputError


def with_prices(cluster: Cluster, prices: Mapping[str, float]) -> Cluster:
    """The cluster with prices per hour of these device types, or of whole servers where no type has the name.

    Raises a BadInputError if nothing has the name.
    """
    types, servers = ([each.name for each in group] for group in (cluster.device_types, cluster.servers))
    known = ", ".join(dict.fromkeys((*types, *servers)))
    faults = [
        f"price_per_hour: {name!r} is neither a device type nor a server of cluster {cluster.name!r}; known: {known}"
        for name in prices
        if name not in types and name not in servers
    ]
    if faults:
        raise BadInputError(*faults)
    return replace(
        cluster,
        device_types=tuple(
            replace(each, price_per_hour=prices.get(each.name, each.price_per_hour)) for each in cluster.device_types
        ),
        servers=tuple(
            each if each.name in types else replace(each, price_per_hour=prices.get(each.name, each.price_per_hour))
            for each in cluster.servers
        ),
    )
