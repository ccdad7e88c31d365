"""What pushes and pulls take at least, whichever hosts own the layers."""

import numpy as np

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.waves import Carrier, ShardPlacement
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.workers.owners import shard_of_layers
from stagecut.planner.workers.rows import RowTables


class ExchangeBounds:
    """Lower bounds with parameter servers; nothing with a delayed all-reduce.

    What is known beforehand is which layers have the same owner: those of a shard if these are spread over the hosts.
    Local owners may be any: each layer is a shard then.
    """

    def __init__(self, tables: RowTables) -> None:
        self._tables, self._cluster = tables, tables.problem.cluster
        model, optimizer = tables.model, tables.problem.job.optimizer
        spread = tables.choices.shards is ShardPlacement.SPREAD
        self._shards = shard_of_layers(model) if spread else np.arange(tables.num_layers)
        self._served = tables.choices.carrier is Carrier.PARAMETER_SERVER
        self._push_bytes = model.layer_params * optimizer.gradient_bytes
        self._pull_bytes = model.layer_params * model.pull_bytes_per_param(tables.choices.local_step)

    def latency_s(self, kind: int) -> Floats:
        """Push and pull between the stages [i, j) of a kind and one owner of their layers, shape (L + 1, L + 1)."""
        latency_s = np.zeros((self._tables.num_layers + 1, self._tables.num_layers + 1))
        links = self._links(kind)
        for shard in np.unique(self._shards).tolist() if self._served else ():
            own = (self._shards == shard) & (self._push_bytes > 0)
            some = _between(own.astype(float)) > 0
            push_bytes, pull_bytes = (
                _between(np.where(own, size, 0.0)) for size in (self._push_bytes, self._pull_bytes)
            )
            seconds = np.min([link.transfer_s(push_bytes) + link.transfer_s(pull_bytes) for link in links], axis=0)
            latency_s = np.maximum(latency_s, np.where(some, seconds, 0.0))
        return latency_s

    def least_period_s(self, num_workers: int) -> float:
        """Seconds that the exchange of a wave occupies the busiest interface, and all of them in the mean.

        At most as many workers have a layer on its owner's host as that has devices. All others push it through the
        owner's interface, and pull it at least once in D + 1 waves: what a worker pulls at the gate of wave c has
        clock c at most. All messages leave some host. Latencies are left out, as are interfaces that tables cover.
        """
        servers = self._cluster.servers
        away = max(0, num_workers - max(server.num_devices for server in servers))
        if not (self._served and away):
            return 0.0
        fastest = max(self._interface_bytes_per_s)
        shards_bytes = np.bincount(self._shards, weights=self._push_bytes)
        pulls = 1 / (self._tables.choices.clock_distance + 1)
        leaving_bytes = away * float(self._push_bytes.sum() + pulls * self._pull_bytes.sum())
        all_of_them = sum(
            rate * server.count for rate, server in zip(self._interface_bytes_per_s, servers, strict=True)
        )
        return max(away * float(shards_bytes.max()) / fastest, leaving_bytes / all_of_them)

    @property
    def _interface_bytes_per_s(self) -> list[float]:
        """By server class; a message may be no slower than a table says, so that tables make it unlimited."""
        paths = (self._cluster.network, *(override.link for override in self._cluster.overrides))
        tables = any(path.table for path in paths)
        return [np.inf if tables else server.nic.bandwidth_bytes_per_s for server in self._cluster.servers]

    def _links(self, kind: int) -> list[Link]:
        """To the server in the own host, and to those of all other classes and hosts."""
        own = self._tables.kinds.placements[kind]
        servers = self._cluster.servers
        links = [servers[own.server_class].islands[own.island].fabric]
        for index, server in enumerate(servers):
            if index != own.server_class or server.count > 1:
                links.append(link_between_hosts(self._cluster, (own.server_class, 1), (index, 1)))
        return links


def _between(sizes: Floats) -> Floats:
    """Sums over [i, j), zero where it is empty, shape (L + 1, L + 1)."""
    sums = np.concatenate(([0.0], np.cumsum(sizes)))
    between: Floats = np.maximum(sums - sums[:, None], 0.0)
    return between
