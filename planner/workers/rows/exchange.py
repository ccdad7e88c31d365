"""What the exchange of updates takes at least, whichever hosts own the layers."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.core.waves import Carrier, LocalStep, ShardPlacement
from stagecut.planner.cost.links import link_between_hosts
from stagecut.planner.workers.rows.owners import shard_of_layers
from stagecut.planner.workers.rows.row_tables import RowTables

MOST_TURNS = 3
"""Shards of which the turns of workers are looked at: that of the first layers, and the largest ones."""
SHORT_TURN = 0.05
"""Part of a period that turns must take to be looked at."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One worker at least has to keep V + after <= T on the stage that holds the end of some shard."""

    after_s: Floats
    """Of the stages [i, j), shape (L + 1, L + 1); minus infinity where they do not hold that end."""
    counts_step: Bools
    """Whether U belongs to it too."""


class ExchangeBounds:
    """Lower bounds with parameter servers, and with a delayed all-reduce that certainly leaves a host.

    What is known of servers beforehand is which layers have the same owner: those of a shard if these are spread over
    the hosts. Local owners may be any: each layer is a shard then.
    """

    def __init__(self, tables: RowTables) -> None:
        self._tables, self._cluster = tables, tables.problem.cluster
        self._distance, self._flushes = tables.choices.clock_distance, tables.choices.local_step is LocalStep.WAVE
        model, optimizer = tables.model, tables.problem.job.optimizer
        spread = tables.choices.shards is ShardPlacement.SPREAD
        self._shards = shard_of_layers(model) if spread else np.arange(tables.num_layers)
        self._served = tables.choices.carrier is Carrier.PARAMETER_SERVER
        self._push_bytes = model.layer_params * optimizer.gradient_bytes
        self._pull_bytes = model.layer_params * model.pull_bytes_per_param(tables.choices.local_step)

    def latency_s(self, kind: int, num_workers: int) -> Floats:
        """From the update of the stages [i, j) of a kind to that of all workers, shape (L + 1, L + 1).

        Push and pull between the stage and one owner of its layers; or the stage's all-reduces one after another, since
        each occupies the interface of its host.
        """
        latency_s = np.zeros((self._tables.num_layers + 1, self._tables.num_layers + 1))
        if num_workers == 1:
            return latency_s
        if not self._served:
            return self._all_reduce_s(kind, num_workers)
        links = self._links(kind)
        for own in self._shard_layers():
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
        clock c at most. With one step a wave a pull brings each wave by itself. All messages leave some host. An
        all-reduce occupies the interfaces of as many hosts as are needed for a device of each worker. Latencies are
        left out, as are interfaces that tables cover.
        """
        all_of_them = sum(
            rate * server.count for rate, server in zip(self._bytes_per_s, self._cluster.servers, strict=True)
        )
        if not self._served:
            num_hosts = self._hosts_needed(num_workers)
            ring_bytes = 2 * (num_workers - 1) / num_workers * float(self._push_bytes.sum())
            share = num_hosts / sum(server.count for server in self._cluster.servers) if num_hosts > 1 else 0.0
            return share * ring_bytes / max(self._bytes_per_s)
        away = self._num_away(num_workers)
        shards_bytes = np.bincount(self._shards, weights=self._push_bytes)
        pulls = 1 if self._flushes else 1 / (self._distance + 1)
        leaving_bytes = away * float(self._push_bytes.sum() + pulls * self._pull_bytes.sum())
        return max(away * float(shards_bytes.max()) / max(self._bytes_per_s), leaving_bytes / all_of_them)

    def turns(self, num_workers: int, period_s: float) -> Iterator[Turn]:
        """Workers take turns at an owner, with D = 0.

        All that are not on its host pull a shard between two ticks of its clock, one after the other. The last one of
        them then has a round trip V before it, its step, and its push, without which the clock does not tick again:

            n pull + V + U + push <= T        for one worker at least, on some stage that holds a part of the shard

        V is the less the later the stage, so that the stage with the last layer of the shard keeps n pull + V <= T, and
        the whole row if it holds the whole shard. The same is true with push and pull exchanged, for the worker that
        pushes first.
        """
        away = self._num_away(num_workers)
        if not (self._served and away and self._distance == 0):
            return
        one_s, other_s = self._push_bytes / max(self._bytes_per_s), self._pull_bytes / max(self._bytes_per_s)
        if one_s.sum() < other_s.sum():
            one_s, other_s = other_s, one_s
        first, *others = self._shard_layers()  # round trips from the first layers are the longest
        for own in (first, *sorted(others, key=lambda own: -float(one_s[own].sum()))[: MOST_TURNS - 1]):
            wait_s = away * float(one_s[own].sum())
            if wait_s > SHORT_TURN * period_s:
                yield _turn(own, wait_s, float(other_s[own].sum()))

    def _all_reduce_s(self, kind: int, num_workers: int) -> Floats:
        """2 (W - 1) steps of bytes / W, over the fastest link from a host of this kind to another."""
        held_bytes = _between(self._push_bytes)
        if self._hosts_needed(num_workers) < 2 or np.isinf(max(self._bytes_per_s)):
            return np.zeros_like(held_bytes)
        links = self._links(kind)[1:]
        steps_s = np.min([link.transfer_s(held_bytes / num_workers) for link in links], axis=0)
        seconds: Floats = np.where(held_bytes > 0, 2 * (num_workers - 1) * steps_s, 0.0)
        return seconds

    def _num_away(self, num_workers: int) -> int:
        """Workers that have a layer on another host than its owner's, at least."""
        return max(0, num_workers - max(server.num_devices for server in self._cluster.servers))

    def _hosts_needed(self, num_workers: int) -> int:
        """Hosts of a device of each worker, at least."""
        servers = self._cluster.servers
        sizes = sorted((server.num_devices for server in servers for _ in range(server.count)), reverse=True)
        return int(np.searchsorted(np.cumsum(sizes), num_workers)) + 1

    def _shard_layers(self) -> list[Bools]:
        """The layers of each shard that are exchanged: those with weights, where any have some."""
        some = (self._push_bytes > 0) | ~self._push_bytes.any()
        found = [(self._shards == shard) & some for shard in np.unique(self._shards).tolist()]
        return [own for own in found if own.any()]

    @property
    def _bytes_per_s(self) -> list[float]:
        """Of interfaces, by server class; a message may be no slower than a table says, so that these are unlimited."""
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


def _turn(own: Bools, wait_s: float, part_s: float) -> Turn:
    first, last = np.flatnonzero(own)[[0, -1]].tolist()
    nodes = np.arange(len(own) + 1)
    whole = (nodes[:, None] <= first) & (nodes > last)
    holds = (nodes[:, None] <= last) & (nodes > last)
    return Turn(after_s=np.where(holds, wait_s + np.where(whole, part_s, 0.0), -np.inf), counts_step=whole)


def _between(sizes: Floats) -> Floats:
    """Sums over [i, j), zero where it is empty, shape (L + 1, L + 1)."""
    sums = np.concatenate(([0.0], np.cumsum(sizes)))
    between: Floats = np.maximum(sums - sums[:, None], 0.0)
    return between
