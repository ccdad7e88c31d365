"""The input of a solver: model, cluster and job."""

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from stagecut.planner.core.blocks import BLOCK, Unit, units_of
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.frameworks import RULES, FrameworkRules
from stagecut.planner.core.job import Job
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import BadInputError, UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.roles import MeshRoles
from stagecut.planner.core.operators.strategy import MEMORY_PRICES
from stagecut.planner.core.ranks import is_placeable
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import WHOLE, Share, shares_of

MAX_MICROBATCHES = 100_000
"""Limit per iteration, since the simulator plays every micro-batch."""
LARGE_BATCH_RULE = f"at most {MAX_MICROBATCHES:,} of the smallest micro-batches (allow only larger ones)"

MAX_LAYERS = 1_000
LONG_CHAIN_RULE = (
    f"at most {MAX_LAYERS:,}, since the memory of a search grows with their square "
    f"(merge neighbours: plan convert PROFILE --max-layers {MAX_LAYERS} -o FILE)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """The choices made for a plan as a whole."""

    schedule: Schedule
    micro_batch: int
    num_microbatches: int
    """Micro-batches per iteration and pipeline."""
    share: Share = WHOLE
    """The share of the cluster that each pipeline has."""
    chunks: int = 1
    """Stages per device group, more than one under `interleaved`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Everything a solver needs to know.

    Raises
    ------
    BadInputError
        If the model was profiled in a precision other than the job's, if it has too many layers or an
        iteration would have too many micro-batches, or if times on a device type of the cluster are neither
        measured nor can be estimated.
    """

    model: ModelProfile
    cluster: Cluster
    job: Job
    roles: MeshRoles | None = None
    """What the devices of every replica divide, in a case of a search space for a framework."""

    def __post_init__(self) -> None:
        num_layers, precision = self.model.num_layers, self.model.precision
        owner, rule = f"model {self.model.name!r}", f"the job's {self.job.precision}"
        require(num_layers <= MAX_LAYERS, owner, "layers", LONG_CHAIN_RULE, num_layers)
        require(precision is self.job.precision, owner, "precision", rule, str(precision))
        batch = self.job.global_batch
        rule = f"such that equal shares of the cluster and a micro-batch size divide the global batch {batch}"
        variants = self.variants + self.unequal_variants
        require(len(variants) > 0, "job", "pipelines", rule, self.job.pipelines)
        most = max(variant.num_microbatches for variant in variants)
        require(most <= MAX_MICROBATCHES, "job", "global_batch", LARGE_BATCH_RULE, self.job.global_batch)
        used = {island.device_type for server in self.cluster.servers for island in server.islands}
        complaints = [fault for name in sorted(used) if (fault := self._missing_times(name))]
        if complaints:
            raise BadInputError(*complaints)
        if self.rules is not None:
            _ = self.cuts  # raises an UnsupportedError if the framework needs blocks and the model has others

    def _missing_times(self, device_type: str) -> str:
        if self.cluster.device_type(device_type).flops_per_s(self.job.precision) is not None:
            return self._not_estimable(device_type)
        missing = [layer.name for layer in self.model.unmerged[0].layers if layer.table(device_type) is None]
        if not missing:
            return ""
        measured = sorted({table.device_type for layer in self.model.layers for table in layer.times})
        known = f", only on {', '.join(map(repr, measured))}" if measured else ""
        return (
            f"device type {device_type!r}: no peak_flops_per_s for {self.job.precision}, and layer {missing[0]!r} "
            f"of model {self.model.name!r} has no measured times on it{known}; give one or the other"
        )

    def _not_estimable(self, device_type: str) -> str:
        """Explain why times cannot be estimated: the model has times on other devices only, and no operations."""
        layers = self.model.unmerged[0].layers
        measured = sorted({table.device_type for layer in layers for table in layer.times})
        if not measured or device_type in measured or any(layer.forward_flops for layer in layers):
            return ""
        known = ", ".join(map(repr, measured))
        return (
            f"device type {device_type!r}: model {self.model.name!r} has times on {known} only, and no forward_flops "
            "to estimate others from; use the same device name in profile and cluster, or give times or forward_flops"
        )

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every combination of schedule, share and micro-batch size that divides a pipeline's part of the batch."""
        batch = self.job.global_batch
        return tuple(
            Variant(
                schedule=schedule,
                micro_batch=size,
                num_microbatches=batch // share.num_pipelines // size,
                share=share,
                chunks=chunks,
            )
            for schedule in self.job.schedules
            for chunks in (self.job.chunks if schedule is Schedule.INTERLEAVED else (1,))
            for share in self.shares
            for size in self.job.micro_batches
            if batch % (share.num_pipelines * size) == 0
            and self.fills_pipelines(share, batch // share.num_pipelines // size, group_size=self._largest_group)
        )

    @property
    def _largest_group(self) -> int:
        """Devices of the largest stage: where stages are alike, that of the fewest."""
        return max(self.replica_numbers, default=1) * max(self._replica_sizes, default=1)

    def fills_pipelines(self, share: Share, num_microbatches: int, *, group_size: int) -> bool:
        """Whether there are micro-batches for as many stages as there is room for, if the framework needs that."""
        if self.rules is None or self.rules.has_partly_filled_pipelines:
            return True
        room = self.cluster.num_devices // share.num_pipelines // group_size
        return num_microbatches >= min(1 + len(self.cuts), room)

    @property
    def unequal_variants(self) -> tuple[Variant, ...]:
        """One for every share, with all samples in one micro-batch that every process cuts into sublots of its own."""
        batch = self.job.global_batch
        return tuple(
            Variant(schedule=Schedule.GPIPE, micro_batch=batch // share.num_pipelines, num_microbatches=1, share=share)
            for share in self.shares
            if self.job.unequal
            and batch % share.num_pipelines == 0
            and min(self.job.micro_batches) <= batch // share.num_pipelines
        )

    @property
    def shares(self) -> tuple[Share, ...]:
        """Every way that the job allows to divide the cluster among identical pipelines."""
        numbers = self.job.pipelines or range(1, self.cluster.num_devices + 1)
        shares = (share for number in numbers for share in shares_of(self.cluster, number))
        return tuple(share for share in shares if self._is_placeable(share))

    def _is_placeable(self, share: Share) -> bool:
        if self.rules is None:
            return True
        experts = 1 if self.roles is None else self.roles.degrees.experts
        return any(
            self.allows_degrees(share, replicas=replicas, tensor_parallel=degree, experts=experts)
            for replicas in self.replica_numbers
            for degree in self._replica_sizes
        )

    def allows_degrees(self, share: Share, *, replicas: int, tensor_parallel: int, experts: int = 1) -> bool:
        """Whether the framework, if there is one, can number the devices of plans whose stages all have these."""
        if self.rules is None or not self.rules.rank_orders:
            return True
        orders, degrees = self.rules.rank_orders_of(experts), {"replicas": replicas, "tensor_parallel": tensor_parallel}
        return is_placeable(self.cluster, share, orders, **degrees)

    @property
    def rules(self) -> FrameworkRules | None:
        """What the framework of the job can run, if it names one."""
        return None if self.job.framework is None else RULES[self.job.framework]

    @property
    def cuts(self) -> tuple[int, ...]:
        """Boundaries at which stages may end, both ends aside.

        Raises an UnsupportedError if they must be those of blocks and the model has layers that are in none.
        """
        cuts: Iterable[int] = range(1, self.model.num_layers)
        if self.rules is None or not (self.rules.is_alike or self.rules.has_whole_blocks):
            return tuple(cuts)
        if self.rules.has_whole_blocks:
            cuts = [unit.start for unit in self._units if unit.role == BLOCK][1:]
        if not self.rules.has_tied_stages and any(layer.shared_params_bytes for layer in self.model.layers):
            cuts = ()
        edges = self.model.skip_edges
        return tuple(cut for cut in cuts if not any(edge.source < cut <= edge.target for edge in edges))

    @property
    def _units(self) -> tuple[Unit, ...]:
        try:
            return units_of(self.model)
        except UnsupportedError as error:
            assert self.rules is not None
            raise UnsupportedError(
                f"model {self.model.name!r}: {error}, and stages of {self.rules.name} are whole blocks"
            ) from None

    @property
    def replica_numbers(self) -> tuple[int, ...]:
        """Replicas that a stage may have under some micro-batch size."""
        sizes = [size for size in self.job.micro_batches if self.job.global_batch % size == 0]
        numbers = range(1, max(sizes, default=0) + 1)
        return tuple(own for own in numbers if any(self.job.allows_replicas(own, size) for size in sizes))

    @property
    def tensor_parallel_degrees(self) -> tuple[int, ...]:
        """Degrees that the job lists, or else every power of two that fits in an island."""
        if self.rules is not None:
            return tuple(degree for degree in self._allowed_degrees if self._is_divisible(degree, self.rules))
        return self._allowed_degrees

    def _is_divisible(self, degree: int, rules: FrameworkRules) -> bool:
        """Whether a framework can divide the optimizer state and heads over so many devices."""
        if degree > 1 and self.job.zero1 and not rules.has_divided_zero1:
            return False
        return not rules.is_alike or all(size % degree == 0 for size in self.model.unmerged[0].head_sizes)

    @property
    def _allowed_degrees(self) -> tuple[int, ...]:
        """Those of the job."""
        if self.job.tensor_parallel is not None:
            return self.job.tensor_parallel
        if all(layer.tensor_parallel_bytes is None for layer in self.model.layers):
            return (1,)
        return self._powers_of_two

    @property
    def _powers_of_two(self) -> tuple[int, ...]:
        """Those that fit in an island."""
        largest = max(island.count for server in self.cluster.servers for island in server.islands)
        return tuple(2**power for power in range(largest.bit_length()))

    @property
    def divisions(self) -> tuple[tuple[int, int | None], ...]:
        """How many devices share a replica, and how they divide it: see :class:`stagecut.planner.core.placement`.

        Where the job allows operators to be divided each in its own way, any power of two of devices can, or those
        that the job lists; not in a model with skip edges, of whose tensors operators do not tell.
        """
        divided = tuple(itertools.product(self.divided_degrees, range(len(MEMORY_PRICES))))
        alike = tuple((degree, None) for degree in self.tensor_parallel_degrees)
        return divided if self.roles is not None else alike + divided

    @property
    def divided_degrees(self) -> tuple[int, ...]:
        """Numbers of devices that may divide each operator of a replica in its own way."""
        if self.job.sharding is None or self.model.skip_edges:
            return ()
        return tuple(degree for degree in self.job.tensor_parallel or self._powers_of_two if degree > 1)

    @property
    def _replica_sizes(self) -> set[int]:
        """Devices that a replica may have."""
        return {degree for degree, _ in self.divisions}

    @property
    def max_stages(self) -> int:
        """Limited by layers and devices, since a stage needs one of each."""
        return min(self.model.num_layers, self.cluster.num_devices)
