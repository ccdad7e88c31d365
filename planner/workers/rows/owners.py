"""Which host's parameter server owns each layer."""

import numpy as np

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker
from stagecut.planner.core.waves import ShardPlacement
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.workers.rows.min_max import min_max_stops


def owners_of(model: WaveCostModel, workers: tuple[VirtualWorker, ...], shards: ShardPlacement) -> tuple[str, ...]:
    """A host for each layer."""
    hosts, held = host_names(model.cluster), _held(model.cluster, workers)
    if shards is ShardPlacement.LOCAL:
        return tuple(hosts[host] for host in held.argmax(axis=1).tolist())
    return _spread(hosts, held, model.layer_params, shard_of_layers(model))


def shard_of_layers(model: WaveCostModel) -> Ints:
    """The shard of each layer: runs of layers, one for each host, the largest as small as possible."""
    sums = np.concatenate(([0.0], np.cumsum(model.layer_params)))
    sizes = sums - sums[:, None]
    sizes[np.tril_indices(len(sums), k=-1)] = np.inf
    _, stops = min_max_stops(np.broadcast_to(sizes, (len(host_names(model.cluster)), *sizes.shape)))
    shards: Ints = np.searchsorted(stops, np.arange(len(model.layer_params)), side="right")
    return shards


def _spread(hosts: list[str], held: Ints, params: Floats, shards: Ints) -> tuple[str, ...]:
    """Each shard to a host of its own where workers hold much of it, the shard with most to gain first."""
    gain = np.array([params[shards == shard] @ held[shards == shard] for shard in range(len(hosts))])
    home = np.zeros(len(hosts), dtype=int)
    for shard in np.argsort(-gain.max(axis=1), kind="stable").tolist():
        home[shard] = int(gain[shard].argmax())
        gain[:, home[shard]] = -1.0
    return tuple(hosts[host] for host in home[shards].tolist())


def _held(cluster: Cluster, workers: tuple[VirtualWorker, ...]) -> Ints:
    """How many workers hold each layer on each host, shape (L, hosts)."""
    hosts = host_names(cluster)
    held = np.zeros((workers[0].stages[-1].stop, len(hosts)), dtype=int)
    for stage in (stage for worker in workers for stage in worker.stages):
        held[stage.start : stage.stop, hosts.index(stage.devices[0].rpartition("/")[0])] += 1
    return held


def host_names(cluster: Cluster) -> list[str]:
    """Every host, in the order of the cluster."""
    return [name for index in range(len(cluster.servers)) for name in cluster.host_names(index)]
