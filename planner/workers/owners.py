"""Which host's parameter server owns each layer."""

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.wave_plan import VirtualWorker
from stagecut.planner.core.waves import ShardPlacement
from stagecut.planner.cost.wave_costs import WaveCostModel


def owners_of(model: WaveCostModel, workers: tuple[VirtualWorker, ...], shards: ShardPlacement) -> tuple[str, ...]:
    """A host for each layer."""
    return spread_owners(model) if shards is ShardPlacement.SPREAD else local_owners(model, workers)


def spread_owners(model: WaveCostModel) -> tuple[str, ...]:
    """Layers from the largest to the smallest, each to the host that owns the fewest parameters so far."""
    hosts, params = host_names(model.cluster), model.layer_params
    owned = np.zeros(len(hosts))
    owners = [""] * len(params)
    for layer in np.argsort(-params, kind="stable").tolist():
        host = int(owned.argmin())
        owned[host] += params[layer]
        owners[layer] = hosts[host]
    return tuple(owners)


def local_owners(model: WaveCostModel, workers: tuple[VirtualWorker, ...]) -> tuple[str, ...]:
    """For each layer the host on which most workers hold it, the first of several."""
    hosts = host_names(model.cluster)
    held = np.zeros((len(model.layer_params), len(hosts)), dtype=int)
    for worker in workers:
        for stage in worker.stages:
            host = stage.devices[0].rpartition("/")[0]
            held[stage.start : stage.stop, hosts.index(host)] += 1
    return tuple(hosts[host] for host in held.argmax(axis=1).tolist())


def host_names(cluster: Cluster) -> list[str]:
    """Every host, in the order of the cluster."""
    return [name for index in range(len(cluster.servers)) for name in cluster.host_names(index)]
