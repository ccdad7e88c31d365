"""Maps the ranks of a run to the devices of a plan."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.operators.strategy import StageSharding
from stagecut.planner.core.plan import Plan
from stagecut.planner.simulator.compilation import MessageSizes


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What one rank is in a plan."""

    rank: int
    device: str
    """Its name in the cluster."""
    pipeline: int
    group: int
    """Device group within the pipeline."""
    replica: int
    tensor_rank: int
    """Index within the tensor-parallel group."""
    stages: tuple[int, ...]
    """Stages of the device group; several under `interleaved`."""

    def __str__(self) -> str:
        stages = ", ".join(str(stage) for stage in self.stages)
        word = "stage" if len(self.stages) == 1 else "stages"
        return f"rank {self.rank} ({self.device}, {word} {stages})"


@dataclass(frozen=True, kw_only=True)
class RankLayout:
    """All ranks of a plan, one per device."""

    roles: tuple[Role, ...]
    """The role of each rank."""
    num_pipelines: int
    num_groups: int
    """Device groups of each pipeline; stage s is on group s mod `num_groups`."""
    num_stages: int
    shares: tuple[tuple[int, ...], ...]
    """For each device group, the proportions in which its replicas split every micro-batch."""
    tensor_parallel: tuple[int, ...]
    """Tensor-parallel degree of each device group."""
    meshes: tuple[tuple[int, ...] | None, ...]
    """For each stage, the sizes of the mesh that shares a replica; None: its operators are not divided."""
    message_sizes: MessageSizes

    @classmethod
    def of(
        cls, plan: Plan, cluster: Cluster | None = None, *, shares: Sequence[Sequence[int]] | None = None
    ) -> "RankLayout":
        """Number the ranks in the order of the cluster's devices, so that those of a host are consecutive.

        Parameters
        ----------
        cluster
            None: the order in which the plan names the devices.
        shares
            For each device group, the proportions of its replicas as integers; None: equal.

        Raises
        ------
        BadInputError
            If there is not one positive share per replica.
        """
        num_groups = len(plan.stages) // plan.chunks
        groups = plan.stages[:num_groups]
        replicas = [stage.replicas for stage in groups]
        parts = tuple(tuple(part) for part in shares or ([1] * count for count in replicas))
        rule = f"one positive whole number for each of the replicas {replicas}"
        fits = [len(part) for part in parts] == replicas and all(part > 0 for own in parts for part in own)
        require(fits, "executor", "shares", rule, parts)
        named = [
            device for pipeline in plan.pipelines for stage in pipeline.stages[:num_groups] for device in stage.devices
        ]
        order = named if cluster is None else [device.name for device in cluster.devices()]
        rank = {name: index for index, name in enumerate(name for name in order if name in set(named))}
        missing = [name for name in named if name not in rank]
        require(not missing, "executor", "devices", "devices of the plan's cluster", missing)
        roles = [
            Role(
                rank=rank[device],
                device=device,
                pipeline=index,
                group=group,
                replica=slot // stage.tensor_parallel,
                tensor_rank=slot % stage.tensor_parallel,
                stages=tuple(range(group, len(plan.stages), num_groups)),
            )
            for index, pipeline in enumerate(plan.pipelines)
            for group, stage in enumerate(pipeline.stages[:num_groups])
            for slot, device in enumerate(stage.devices)
        ]
        return cls(
            roles=tuple(sorted(roles, key=lambda role: role.rank)),
            num_pipelines=len(plan.pipelines),
            num_groups=num_groups,
            num_stages=len(plan.stages),
            shares=parts,
            tensor_parallel=tuple(stage.tensor_parallel for stage in groups),
            meshes=tuple(_mesh(stage.sharding) for stage in plan.stages),
            message_sizes=message_sizes(plan),
        )

    @property
    def world_size(self) -> int:
        """Number of ranks."""
        return len(self.roles)

    @property
    def names(self) -> list[str]:
        """What to call each rank in messages and charts: rank, device and stages."""
        return [str(role) for role in self.roles]

    @cached_property
    def _ranks(self) -> dict[tuple[int, int, int, int], int]:
        return {(role.pipeline, role.group, role.replica, role.tensor_rank): role.rank for role in self.roles}

    def num_replicas(self, stage: int) -> int:
        """Replicas of a stage in each pipeline."""
        return len(self.shares[stage % self.num_groups])

    def num_sharing(self, stage: int) -> int:
        """Tensor-parallel degree of a stage."""
        return self.tensor_parallel[stage % self.num_groups]

    def rank_of(self, pipeline: int, stage: int, *, replica: int, tensor_rank: int) -> int:
        """The rank that holds this part of a stage."""
        return self._ranks[pipeline, stage % self.num_groups, replica, tensor_rank]

    def sharing_ranks(self, role: Role) -> tuple[int, ...]:
        """Ranks of a role's tensor-parallel group, in order."""
        degree = self.tensor_parallel[role.group]
        return tuple(self._ranks[role.pipeline, role.group, role.replica, index] for index in range(degree))

    def lines(self, role: Role, stage: int) -> tuple[tuple[int, ...], ...]:
        """For each axis of a stage's mesh, the ranks that differ from a role in that coordinate only, in order."""
        ranks, sizes, lines = self.sharing_ranks(role), self.meshes[stage] or (), []
        for axis, size in enumerate(sizes):
            stride = prod(sizes[axis + 1 :])
            first = role.tensor_rank - role.tensor_rank // stride % size * stride
            lines.append(tuple(ranks[first + step * stride] for step in range(size)))
        return tuple(lines)

    def copies(self, stage: int, tensor_rank: int) -> tuple[int, ...]:
        """Ranks that hold the same weights of a stage, over all pipelines and replicas, ascending."""
        pairs = ((p, replica) for p in range(self.num_pipelines) for replica in range(self.num_replicas(stage)))
        return tuple(sorted(self.rank_of(p, stage, replica=r, tensor_rank=tensor_rank) for p, r in pairs))

    def part(self, stage: int, replica: int, lo: int, hi: int) -> tuple[int, int]:
        """The part of samples [lo, hi) that one replica of a stage gets."""
        shares = self.shares[stage % self.num_groups]
        total, before = sum(shares), sum(shares[:replica])
        size = hi - lo
        return lo + size * before // total, lo + size * (before + shares[replica]) // total


def _mesh(sharding: StageSharding | None) -> tuple[int, ...] | None:
    return None if sharding is None else sharding.mesh


def message_sizes(plan: Plan) -> MessageSizes:
    """Samples per message over the boundaries of a plan."""
    return MessageSizes(
        forward=tuple(stage.forward_message for stage in plan.stages[:-1]),
        backward=tuple(stage.backward_message for stage in plan.stages[1:]),
    )
