"""Options of training through waves, and what they do to a job."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, ClassVar

import click

from stagecut.planner.cli.parameters.groups import flags_given, member_option, option
from stagecut.planner.cli.parameters.types import MicroBatches, number_or_auto
from stagecut.planner.cli.process.notes import note
from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.job import AUTO, Job, Number, WaveChoices
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.waves import Allocation, Carrier, LocalStep, ShardPlacement
from stagecut.planner.io.documents.fields import MAX_COUNT

SYNCHRONOUS = (
    *("schedules", "replicas", "tensor_parallel", "sharding", "pipelines"),
    *("zero1", "chunks", "slice", "action_overhead_s"),
)
"""Options that are fields of a job, and say nothing about virtual workers that train through waves."""


class Synchronisation(StrEnum):
    """How copies of the weights are kept together."""

    ALL_REDUCE = "all-reduce"
    """Gradients are all-reduced once per iteration."""
    WSP = "wsp"
    """Wave-synchronous parallel: virtual workers exchange updates through waves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveOptions:
    """The options of training through waves; None where left out."""

    HEADING: ClassVar[str] = "Virtual workers, with --synchronisation wsp"

    synchronisation: Synchronisation | None = member_option(
        "--synchronisation",
        members=Synchronisation,
        help="all-reduce: gradients once per iteration; wsp: virtual workers of different shape exchange updates "
        "through waves, with minibatches of --micro-batch samples. The options below are for wsp.  "
        "[default: all-reduce]",
    )
    clock_distance: int | None = option(
        "--clock-distance",
        type=click.IntRange(max=MAX_COUNT),
        help="How many waves a worker may be ahead of the slowest one (D).  [default: 0]",
    )
    in_flight: Number | None = option(
        "--in-flight",
        type=number_or_auto,
        metavar="N|auto",
        help="Minibatches of a worker in flight (N_m); auto: as many as pay.  [default: auto]",
    )
    num_workers: Number | None = option(
        "--workers", type=number_or_auto, metavar="N|auto", help="Number of virtual workers.  [default: auto]"
    )
    allocation: Allocation | None = member_option(
        "--allocation",
        members=Allocation,
        help="Devices of a worker: np (a host), ed (a device of every host), hd (devices of two hosts), or whatever "
        "is best.  [default: optimal]",
    )
    shards: ShardPlacement | None = member_option(
        "--shards",
        members=ShardPlacement,
        help="Parameter servers own layers spread over all hosts, or local to most of the workers that hold them.  "
        "[default: spread]",
    )
    carrier: Carrier | None = member_option(
        "--carrier", members=Carrier, help="What carries updates between workers.  [default: parameter-server]"
    )
    local_step: LocalStep | None = member_option(
        "--local-step",
        members=LocalStep,
        help="When a worker updates its own weights: after each minibatch, or once a wave.  [default: minibatch]",
    )
    proportional: bool | None = option(
        "--proportional-waves/--equal-waves",
        default=None,
        show_default=False,
        help="Whether faster workers make longer waves.  [default: equal]",
    )

    def choices(self, stated: WaveChoices | None) -> WaveChoices | None:
        """The choices of a job file, overridden by the options that were given; None without waves."""
        names = [field.name for field in fields(WaveChoices)]
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        wanted = self.synchronisation
        if wanted is Synchronisation.WSP or (wanted is None and stated is not None):
            return replace(stated or WaveChoices(), **given)
        if flags := flags_given(names):
            raise click.UsageError(f"{flags}: only with '--synchronisation wsp'.")
        return None


def refuse_without_effect(names: Iterable[str]) -> None:
    """Raise a usage error if the command line states options that training through waves has no use of."""
    if flags := flags_given(names):
        raise click.UsageError(f"{flags}: no effect with '--synchronisation wsp'.")


def require_devices(waves: WaveChoices | None, cluster: Cluster) -> None:
    """Raise a BadInputError if there are more workers than devices."""
    most = cluster.num_devices
    if waves is not None and waves.num_workers != AUTO:
        rule = f"at most {most}, the devices of cluster {cluster.name!r}"
        require(waves.num_workers <= most, "job", "num_workers", rule, waves.num_workers)


def minibatch_of(sizes: MicroBatches | None, stated: Job | None) -> int:
    """The only size that the options, or else the job file, allow."""
    listed = sizes.sizes if sizes is not None else () if stated is None else stated.micro_batches
    if len(listed) != 1 or (sizes is not None and sizes.unequal):
        raise click.UsageError("'--synchronisation wsp' needs one '--micro-batch', the size of a minibatch.")
    return listed[0]


def batch_of(waves: WaveChoices, minibatch: int, *, given: int | None) -> int:
    """The global batch: one wave of all workers if they make one step of it and N_m is open, else a minibatch."""
    if waves.local_step is not LocalStep.WAVE or waves.in_flight != AUTO:
        refuse_without_effect(("global_batch",))
        return minibatch
    if given is None:
        needed = "'--global-batch', the samples of one wave of all workers, or '--in-flight'"
        raise click.UsageError(f"'--local-step wave' needs {needed}.")
    return given


def through_waves(stated: Job, waves: WaveChoices, *, minibatch: int, batch: int) -> Job:
    """A job for virtual workers; what has no effect on them takes its default, and a note says so."""
    names = (*SYNCHRONOUS, "unequal")
    defaults: dict[str, Any] = {field.name: field.default for field in fields(Job) if field.name in names}
    plain = {"global_batch": batch} | defaults
    ignored = [name for name, value in plain.items() if getattr(stated, name) != value]
    if ignored:
        note(f"job: {', '.join(ignored)}: no effect with synchronisation wsp")
    return replace(stated, **plain, micro_batches=(minibatch,), waves=waves)
