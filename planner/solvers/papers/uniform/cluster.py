"""The cluster as planners for identical devices see it: equal servers, every device as slow as the slowest.

What planners decide for :mod:`stagecut.planner.solvers.papers.uniform.equal_servers` is mapped to the real servers in
the cluster's order, and simulated with their real properties.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Variant
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.stage_costs import StageCostModel, StageCosts
from stagecut.planner.network.arrangement import RECOMPUTE_MODES, arrange, assemble
from stagecut.planner.network.device_groups import PlacedGroup
from stagecut.planner.solvers.papers.uniform.equal_servers import equal_servers, equal_share
from stagecut.planner.solvers.papers.uniform.intervals import Intervals


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformGroup:
    """The devices of one stage."""

    replicas: int = 1
    tensor_parallel: int = 1

    @property
    def num_devices(self) -> int:
        """Devices of all replicas."""
        return self.replicas * self.tensor_parallel


class UniformStage(NamedTuple):
    """A stage that a planner chose."""

    stop: int
    """First layer after it."""
    group: UniformGroup
    seconds: float
    """Its time in the planner's objective."""


class Slot(NamedTuple):
    """One server of the uniform cluster: an island of a host."""

    server_class: int
    host: int
    island: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UniformCluster:
    """The equal servers of one pipeline."""

    costs: CostModel
    """For the variant's share of the real cluster."""
    stages: StageCostModel
    """Costs of stages on the equal servers."""
    slots: tuple[Slot, ...]
    """The real servers in the cluster's order."""
    devices_per_server: int
    memory_bytes: float
    """The least memory of any device."""
    inside: Link
    """The slowest fabric: between devices of a server."""
    between: Link
    """The slowest path from a server to another, through interfaces, network and bridges."""

    @property
    def num_servers(self) -> int:
        """Number of servers."""
        return len(self.slots)

    @property
    def num_devices(self) -> int:
        """Devices of all servers."""
        return self.num_servers * self.devices_per_server

    @property
    def most_servers_per_stage(self) -> int:
        """How many whole servers a stage may span, whichever they are: all of them if all are alike, else one."""
        return len(self.slots) if self.are_alike(0, self.num_servers) else 1

    def stage_costs(
        self, group: UniformGroup, *, micro_batch: int, recompute: bool, start: Ints, stop: Ints
    ) -> StageCosts:
        """Costs of stages [start, stop) on a group of the slowest devices, each of shape (n,).

        Raises
        ------
        ValueError
            If the group is larger than a server and not several whole ones.
        """
        placement = self._placement(group, Slot(server_class=0, host=0, island=0))
        return self.stages.stages(placement, micro_batch=micro_batch, recompute=recompute, start=start, stop=stop)

    def intervals(self, variant: Variant, group: UniformGroup) -> Intervals:
        """Every stage that a variant may have on a group of the slowest devices."""
        problem = self.costs.problem
        start, stop = np.triu_indices(problem.model.num_layers + 1, 1)
        costs = (
            (mode, self.stage_costs(group, micro_batch=variant.micro_batch, recompute=mode, start=start, stop=stop))
            for mode in RECOMPUTE_MODES[problem.job.recompute]
        )
        return Intervals(num_layers=problem.model.num_layers, modes=tuple(costs), limit_bytes=self.memory_bytes)

    def transfers_s(self, variant: Variant) -> tuple[Floats, Floats]:
        """Seconds one way over each boundary, inside a server and between servers, shape (L + 1,) each."""
        message_bytes = variant.micro_batch * self.costs.problem.model.boundary_bytes()
        return self.inside.transfer_s(message_bytes), self.between.transfer_s(message_bytes)

    def groups(self, micro_batch: int) -> tuple[UniformGroup, ...]:
        """Every group that the job allows: part of a server, or whole servers with each replica inside one of them."""
        problem, width = self.costs.problem, self.devices_per_server
        groups = (
            UniformGroup(replicas=replicas, tensor_parallel=degree)
            for degree in problem.tensor_parallel_degrees
            for replicas in range(1, min(micro_batch, self.num_devices // degree) + 1)
            if problem.job.allows_replicas(replicas, micro_batch)
        )
        return tuple(
            group
            for group in groups
            if group.num_devices <= width or (group.num_devices % width == 0 and width % group.tensor_parallel == 0)
        )

    def replicas(self, micro_batch: int) -> tuple[int, ...]:
        """Replica counts that a stage without tensor parallelism may have."""
        return tuple(group.replicas for group in self.groups(micro_batch) if group.tensor_parallel == 1)

    def placements(
        self, groups: Sequence[UniformGroup], *, opens: Sequence[bool] = ()
    ) -> tuple[PlacedGroup, ...] | None:
        """Placements of consecutive groups, server after server; None if there are too few servers.

        A group that does not fit on the rest of a server begins the next one, as does one that `opens`. A group of
        several servers takes the next ones that are whole hosts of one class.
        """
        placed, server, used = list[PlacedGroup](), 0, 0
        for group, fresh in zip(groups, opens or (False,) * len(groups), strict=True):
            if used and (fresh or used + group.num_devices > self.devices_per_server):
                server, used = server + 1, 0
            width = max(1, group.num_devices // self.devices_per_server)
            while not self.are_alike(server, server + width):
                server += 1
                if server + width > self.num_servers:
                    return None
            same_host = server > 0 and self.slots[server - 1][:2] == self.slots[server][:2]
            placed.append(
                PlacedGroup(placement=self._placement(group, self.slots[server]), opens=used == 0 and not same_host)
            )
            server, used = server + width - 1, min(used + group.num_devices, self.devices_per_server)
        return tuple(placed)

    def are_alike(self, first: int, last: int) -> bool:
        """Whether a stage can span the servers [first, last): a single one, or whole hosts of one class."""
        slots = self.slots[first:last]
        if len(slots) < last - first:
            return False
        whole_hosts = len(self.costs.cluster.servers[slots[0].server_class].islands) == 1
        return len(slots) == 1 or (whole_hosts and len({slot.server_class for slot in slots}) == 1)

    def plan(
        self, variant: Variant, stops: Sequence[int], groups: Sequence[UniformGroup], *, opens: Sequence[bool] = ()
    ) -> Plan | None:
        """The plan with these stops and :meth:`placements`; None if the real servers or their memory do not suffice."""
        placed = self.placements(groups, opens=opens)
        return None if placed is None else assemble(self.costs, variant, arrange(placed, stops))

    def plan_of(self, variant: Variant, stages: Sequence[UniformStage]) -> Plan | None:
        """See :meth:`plan`."""
        return self.plan(variant, [stage.stop for stage in stages], [stage.group for stage in stages])

    def plans_on_all_devices(
        self, variant: Variant, stops: Callable[[int], Sequence[int]], *, most_stages: int, degrees: Sequence[int]
    ) -> Iterator[Plan]:
        """The plan that fits in memory for every way to divide all devices of a pipeline into equal groups.

        Only pipelines of at most `most_stages` stages, with one of the tensor parallel `degrees`. `stops` gives the
        first layer after each stage, for a number of stages.
        """
        for group in self.groups(variant.micro_batch):
            num_stages, rest = divmod(self.num_devices, group.num_devices)
            possible = rest == 0 and num_stages <= most_stages and group.tensor_parallel in degrees
            if possible and (plan := self.plan(variant, stops(num_stages), [group] * num_stages)):
                yield plan

    def _placement(self, group: UniformGroup, slot: Slot) -> Placement:
        num_hosts, rest = divmod(group.num_devices, self.devices_per_server)
        if num_hosts >= 1 and rest:
            raise ValueError(f"{group} is neither part of a server of {self.devices_per_server} nor whole servers")
        return Placement(
            server_class=slot.server_class,
            island=slot.island,
            num_hosts=max(1, num_hosts),
            replicas=group.replicas,
            tensor_parallel=group.tensor_parallel,
        )


def uniform_cluster(costs: CostModel, solver: str) -> UniformCluster:
    """The servers of one pipeline, seen as equal; `costs` are those of its share, `solver` is named in the message.

    Raises
    ------
    UnsupportedError
        If the servers, or the islands in them, do not all have equally many devices.
    """
    cluster = costs.cluster
    sizes = {island.count for server in cluster.servers for island in server.islands}
    if len(sizes) > 1:
        raise UnsupportedError(
            f"solver {solver!r} needs servers with equally many devices of one kind, but those of cluster "
            f"{cluster.name!r} have {', '.join(map(str, sorted(sizes)))}; "
            "use a solver for unlike servers, for example 'milp'"
        )
    slots = tuple(
        Slot(server_class=index, host=host, island=island)
        for index, server in enumerate(cluster.servers)
        for host in range(server.count)
        for island in range(len(server.islands))
    )
    equal = equal_servers(costs)
    (server,) = equal.servers
    return UniformCluster(
        costs=costs,
        stages=StageCostModel(costs.problem, equal_share(costs.share), equal),
        slots=slots,
        devices_per_server=sizes.pop(),
        memory_bytes=equal.device_types[0].memory_bytes,
        inside=server.islands[0].fabric,
        between=equal.network,
    )
