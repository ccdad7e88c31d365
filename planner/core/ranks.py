"""Ranks of devices: launchers such as torchrun give every host contiguous ones."""

from collections.abc import Sequence

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.frameworks import RankOrder
from stagecut.planner.core.share import Share


def is_placeable(
    cluster: Cluster, share: Share, orders: Sequence[RankOrder], *, replicas: int, tensor_parallel: int
) -> bool:
    """Whether an order gives every host contiguous ranks, wherever in their shares the pipelines have their stages.

    All stages have that many replicas and that degree of tensor parallelism.
    """
    classes = [
        _HostClass(cluster, share, index, replicas=replicas, tensor_parallel=tensor_parallel)
        for index in range(len(cluster.servers))
    ]
    single_host = len(classes) == 1 and classes[0].num_hosts == 1
    fine = {
        RankOrder.STAGES_LAST: all(own.has_contiguous_stages for own in classes),
        RankOrder.COPIES_LAST: single_host or all(own.has_contiguous_copies for own in classes),
    }
    return any(fine[order] for order in orders)


class _HostClass:
    """What stages of one shape can take of a host, in one pipeline's share of a server class."""

    def __init__(
        self, cluster: Cluster, share: Share, server_class: int, *, replicas: int, tensor_parallel: int
    ) -> None:
        server, size = cluster.servers[server_class], replicas * tensor_parallel
        self._num_groups, self._num_sharing = share.host_split(server_class), share.device_split(server_class)
        islands = [island.count // self._num_sharing for island in server.islands]
        self.num_hosts = server.count // self._num_groups
        self._most_stages = sum(count // size for count in islands)
        num_hosts, rest = divmod(size, sum(islands))
        # A stage takes whole hosts of a class with one island: see docs/search_space.md.
        self._is_across = len(islands) == 1 and rest == 0 and 2 <= num_hosts <= self.num_hosts
        self._copies_per_host = self._num_sharing * (islands[0] // tensor_parallel if self._is_across else replicas)

    @property
    def has_contiguous_stages(self) -> bool:
        """Whether all pipelines of a stage can come before the next stage.

        Ranks of a stage go from pipeline to pipeline, so either all pipelines are on every host, or a host has a
        single stage. Pipelines that share several hosts for one stage would take turns on them.
        """
        return (not self._is_across or self._num_sharing == 1) and (self._num_groups == 1 or self._most_stages <= 1)

    @property
    def has_contiguous_copies(self) -> bool:
        """Whether all stages of a replica can come before the next replica: a host has stages of one only."""
        return self._copies_per_host == 1 or not (self._is_across or self._most_stages)
