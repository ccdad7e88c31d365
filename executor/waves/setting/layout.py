"""Maps the ranks of a run to the devices and parameter servers of a plan of virtual workers."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier

Member = tuple[int, int]
"""A worker and one of its stages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveRole:
    """What one rank is: a stage of a worker, or the parameter server of a host."""

    rank: int
    device: str
    """The device's name, or the host's of a parameter server."""
    worker: int | None = None
    stages: tuple[int, ...] = ()
    """The one stage of the rank; empty for a parameter server."""

    @property
    def member(self) -> Member:
        """Worker and stage."""
        assert self.worker is not None
        return self.worker, self.stages[0]

    def __str__(self) -> str:
        if self.worker is None:
            return f"rank {self.rank} (parameter server of {self.device})"
        return f"rank {self.rank} ({self.device}, worker {self.worker}, stage {self.stages[0]})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Layers of a stage that are exchanged together."""

    owner: str
    """The host of the parameter server; empty for an all-reduce."""
    layers: tuple[int, ...]
    members: tuple[Member, ...]
    """Those who exchange them: of a server all that hold a layer of it, of an all-reduce a stage of each worker."""

    @property
    def partner(self) -> str:
        """With whom, in words."""
        return f"server of {self.owner}" if self.owner else f"layers [{self.layers[0]}, {self.layers[-1] + 1})"


@dataclass(frozen=True, kw_only=True)
class WaveLayout:
    """All ranks of a plan: in the cluster's order the devices of each host, then its parameter server if it has one.

    So the ranks of a host follow one another, as torchrun numbers them. A single worker has no servers: it exchanges
    nothing.
    """

    plan: WavePlan
    roles: tuple[WaveRole, ...]

    @classmethod
    def of(cls, plan: WavePlan, cluster: Cluster | None = None) -> "WaveLayout":
        """Number the ranks host by host; without a cluster in the order in which the plan names devices and owners."""
        places = {
            device: (index, stage)
            for index, worker in enumerate(plan.workers)
            for stage, device in enumerate(worker.devices)
        }
        owners = list(dict.fromkeys(plan.owners)) if len(plan.workers) > 1 else []
        order = [*places, *owners]
        if cluster is not None:
            known = _names(cluster)
            missing = sorted(set(order) - set(known))
            require(not missing, "executor", "devices and owners", "those of the plan's cluster", missing)
            order = [name for name in known if name in places or name in owners]
        return cls(
            plan=plan,
            roles=tuple(
                WaveRole(rank=rank, device=name, worker=places[name][0], stages=(places[name][1],))
                if name in places
                else WaveRole(rank=rank, device=name)
                for rank, name in enumerate(order)
            ),
        )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.roles)

    @property
    def names(self) -> list[str]:
        """What to call each rank in messages and charts."""
        return [str(role) for role in self.roles]

    @property
    def servers(self) -> tuple[WaveRole, ...]:
        """The parameter servers."""
        return tuple(role for role in self.roles if role.worker is None)

    @cached_property
    def _ranks(self) -> dict[Member | str, int]:
        return {role.device if role.worker is None else role.member: role.rank for role in self.roles}

    def rank_of(self, worker: int, stage: int) -> int:
        """The rank of a stage."""
        return self._ranks[worker, stage]

    def server_of(self, owner: str) -> int:
        """The rank of a host's parameter server."""
        return self._ranks[owner]

    def owned(self, owner: str) -> tuple[int, ...]:
        """The layers of a parameter server."""
        return tuple(layer for layer, host in enumerate(self.plan.owners) if host == owner)

    def parts(self, worker: int, stage: int) -> tuple[Part, ...]:
        """What a stage exchanges; a single worker steps with what it sums up itself."""
        own = self.plan.workers[worker].stages[stage]
        if self.plan.carrier is Carrier.PARAMETER_SERVER and len(self.plan.workers) > 1:
            owners = dict.fromkeys(self.plan.owners[own.start : own.stop])
            layers = {owner: [n for n in self.owned(owner) if own.start <= n < own.stop] for owner in owners}
            return tuple(
                Part(owner=owner, layers=tuple(held), members=self._holders(self.owned(owner)))
                for owner, held in layers.items()
            )
        runs = self.plan.shared_runs()
        ranges = [tuple(range(lo, hi)) for lo, hi in runs if own.start <= lo < own.stop]
        return tuple(Part(owner="", layers=held, members=self._holders(held)) for held in ranges)

    def _holders(self, layers: Sequence[int]) -> tuple[Member, ...]:
        """Stages of all workers with any of the layers."""
        return tuple(
            (index, number)
            for index, worker in enumerate(self.plan.workers)
            for number, stage in enumerate(worker.stages)
            if any(stage.start <= layer < stage.stop for layer in layers)
        )


def _names(cluster: Cluster) -> list[str]:
    """Of each host, the names of its devices and then its own."""
    devices = [device.name for device in cluster.devices()]
    hosts = (host for index in range(len(cluster.servers)) for host in cluster.host_names(index))
    return [name for host in hosts for name in (*(each for each in devices if _host_of(each) == host), host)]


def _host_of(device: str) -> str:
    return device.rpartition("/")[0]
