"""Time of collective operations."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.cluster import UNLIMITED, AllReduceTable, Cluster, Island, Link, slowest
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.links import crosses_hosts, link_between_hosts


@dataclass(frozen=True, slots=True, kw_only=True)
class AllReduce:
    """An all-reduce among some ranks: as measured, or else as a ring over links of one speed."""

    num_ranks: int
    link: Link
    measured: AllReduceTable | None = None

    @property
    def has_table(self) -> bool:
        """Whether its time is not simply a latency plus an equal time per byte."""
        return self.measured is not None or bool(self.link.table)

    def seconds(self, num_bytes: Floats) -> Floats:
        """Seconds for an all-reduce of `num_bytes` on each rank."""
        if self.measured is not None:
            return self.measured.seconds(num_bytes)
        return ring_all_reduce_s(num_bytes, self.num_ranks, self.link)

    def least_s(self, num_bytes: float) -> float:
        """Least total time of messages that add up to so many bytes: that many bytes at the best rate of any size.

        Seconds are linear in the bytes between the points of a table, so the best rate is at a point or at the total.
        """
        per_point, points = (self.num_ranks, self.link.table) if self.measured is None else (1, self.measured.table)
        sizes = np.array([num_bytes, *(size * per_point for size, _ in points if 0 < size * per_point < num_bytes)])
        seconds = self.seconds(sizes)
        return float(num_bytes * np.min(seconds / sizes)) if num_bytes > 0 else float(seconds[0])


def exchange_of(cluster: Cluster, placement: Placement, share: Share = WHOLE) -> AllReduce:
    """The all-reduce among the devices of a replica; all replicas of a stage, in all pipelines, run it at once.

    On a shared fabric, n measured all-reduces at once take as long as a single one of n times the bytes.
    `cluster` is one pipeline's share.
    """
    island, degree = _island(cluster, placement), placement.tensor_parallel
    measured = island.all_reduce_among(degree)
    if measured is not None and island.shared:
        at_once = placement.devices_per_host // degree * share.device_split(placement.server_class)
        measured = measured.scaled(over=at_once)
    return AllReduce(num_ranks=degree, link=group_link(cluster, placement), measured=measured)


def gradient_sync_of(cluster: Cluster, placement: Placement, share: Share = WHOLE) -> AllReduce:
    """The all-reduce of gradients among the replicas of a stage in all pipelines; `cluster` is one pipeline's share."""
    num_ranks, measured = placement.replicas * share.num_pipelines, None
    if placement.tensor_parallel == 1 and not crosses_hosts(placement, share):
        measured = _island(cluster, placement).all_reduce_among(num_ranks)
    return AllReduce(num_ranks=num_ranks, link=ring_link(cluster, placement, share), measured=measured)


def ring_all_reduce_s(num_bytes: Floats, num_ranks: int, link: Link) -> Floats:
    """Ring all-reduce of `num_bytes` on each of `num_ranks` ranks over links of one speed.

    2 (n - 1) steps that each move bytes / n (Thakur et al., IJHPCA 2005); nothing for a single rank.
    """
    return 2 * (num_ranks - 1) * link.transfer_s(num_bytes / num_ranks)


def group_link(cluster: Cluster, placement: Placement) -> Link:
    """The link of a ring over the devices of a replica, while all replicas of the stage do the same.

    On a shared fabric all transfers of a step pass through the same root and get an equal part of it.
    """
    island = _island(cluster, placement)
    return island.fabric.scaled(over=placement.devices_per_host) if island.shared else island.fabric


def ring_link(cluster: Cluster, placement: Placement, share: Share = WHOLE) -> Link:
    """The slowest link of a ring over the replicas of a stage in all pipelines; `cluster` is one pipeline's share.

    `tensor_parallel` such rings run at once, one for each part of the weights. On a shared fabric all
    their transfers pass through the same root. Between hosts, one transfer of each ring leaves and one
    enters each interface; a ring with one device on each host does not use the fabric.
    """
    link, own = group_link(cluster, placement), placement.server_class
    if not crosses_hosts(placement, share):
        return link
    sharing, degree = share.device_split(own), placement.tensor_parallel
    between = link_between_hosts(cluster, (own, 1), (own, 1))
    inside = UNLIMITED if sharing * placement.devices_per_host == degree else link
    return slowest(inside, between.scaled(sharing, over=degree))


def _island(cluster: Cluster, placement: Placement) -> Island:
    return cluster.servers[placement.server_class].islands[placement.island]
