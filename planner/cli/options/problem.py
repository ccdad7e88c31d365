"""Options that define the problem to solve."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import click

from stagecut.planner.cli.options.time_notes import note_times
from stagecut.planner.cli.options.training import OPTIMIZERS, optimizer_option, precision_option, sequence_length_option
from stagecut.planner.cli.options.waves import (
    SYNCHRONOUS,
    WaveOptions,
    batch_of,
    minibatch_of,
    refuse_without_effect,
    require_devices,
    through_waves,
)
from stagecut.planner.cli.options.without_effect import note_overridden, note_unable
from stagecut.planner.cli.parameters.catalogue import (
    CLUSTER_HELP,
    catalogue_model,
    default_precision,
    is_profile,
    load_cluster,
    load_profile,
)
from stagecut.planner.cli.parameters.files import InputFile, NameOrFile
from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import (
    MicroBatches,
    counts,
    counts_or_auto,
    micro_batches,
    shardings,
    slices,
    words_of,
)
from stagecut.planner.cli.process.notes import note
from stagecut.planner.core.frameworks import RULES, Framework
from stagecut.planner.core.job import Job, Optimizer, Recompute, SliceChoice, WaveChoices, standard_optimizer
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.fields import MAX_COUNT
from stagecut.planner.io.files.job import read_job

MAX_SECONDS = 1e6
DEFAULT_SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
"""Schedules without a job file; others must be asked for by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemChoices(WaveOptions):
    """The options of a problem; None where left out, an empty tuple for `auto`."""

    HEADING: ClassVar[str] = "What to plan"

    model: str = option(
        "--model",
        type=NameOrFile(),
        required=True,
        metavar="NAME|FILE",
        help="Catalogue model, profile, or configuration (config.json or its folder).",
    )
    cluster: str = option("--cluster", type=NameOrFile(), required=True, metavar="NAME|FILE|TEXT", help=CLUSTER_HELP)
    global_batch: int | None = option(
        "--global-batch", type=click.IntRange(max=MAX_COUNT), help="Samples per iteration."
    )
    job: Path | None = option(
        "--job", type=InputFile(), metavar="FILE", help="Job file; the options below override it."
    )
    micro_batches: MicroBatches | None = option(
        "--micro-batch",
        type=micro_batches,
        metavar="1,2,4|unequal[:SIZES]",
        help="Allowed micro-batch sizes in samples; unequal: every process has its own, of SIZES (1,2,4, divisors, "
        "all; otherwise the powers of two).  [default: 1,2,4,8]",
    )
    schedules: tuple[Schedule, ...] | None = option(
        "--schedule",
        type=words_of(Schedule),
        metavar="LIST|all",
        help="Allowed schedules: gpipe, 1f1b, eager-1f1b, interleaved.  [default: all but interleaved]",
    )
    recompute: Recompute | None = member_option(
        "--recompute",
        members=Recompute,
        help="Whether stages recompute activations; auto: only those that would not fit otherwise.  [default: auto]",
    )
    replicas: tuple[int, ...] | None = option(
        "--replicas",
        type=counts_or_auto,
        metavar="1,2|1-4|auto",
        help="Allowed replica counts of a stage; auto: every divisor of the micro-batch.  [default: auto]",
    )
    tensor_parallel: tuple[int, ...] | None = option(
        "--tensor-parallel",
        type=counts_or_auto,
        metavar="1,2,4|auto",
        help="Allowed tensor-parallel degrees; auto: powers of two up to the size of an island.  [default: auto]",
    )
    sharding: tuple[Parallelism, ...] | None = option(
        "--sharding",
        type=shardings,
        metavar="none|auto|LIST",
        help="How the devices of a replica may divide each operator: by the kinds of LIST (data, tensor, sequence, "
        "context, experts, zero1, zero2, fsdp), by all of them (auto), or by tensor parallelism alike in a stage.  "
        "[default: none]",
    )
    pipelines: tuple[int, ...] | None = option(
        "--pipelines",
        type=counts_or_auto,
        metavar="1,2|1-4|auto",
        help="Allowed numbers of identical pipelines; auto: all that divide the cluster equally.  [default: auto]",
    )
    zero1: bool | None = option(
        "--zero1/--no-zero1",
        default=None,
        show_default=False,
        help="Whether to shard the optimizer state over replicas and pipelines (ZeRO-1).  [default: no]",
    )
    chunks: tuple[int, ...] | None = option(
        "--chunks", type=counts, metavar="2,3", help="Stages per device group under interleaved.  [default: 2]"
    )
    slice: SliceChoice | None = option(
        "--slice",
        type=slices,
        metavar="auto|never|N",
        help="How many micro-batches to halve during warm-up; auto: as many as pay off.  [default: never]",
    )
    action_overhead_s: float | None = option(
        "--action-overhead",
        type=click.FloatRange(0, MAX_SECONDS),
        metavar="SECONDS",
        help="Fixed cost of each half of a halved forward, in seconds.  [default: 0.0004]",
    )
    framework: Framework | None = member_option(
        "--for",
        members=Framework,
        help="Plan what a framework can run: whole blocks, stages alike, its schedules and order of ranks "
        "(docs/search_space.md).  [default: any plan]",
    )
    precision: Precision | None = precision_option()
    optimizer: str | None = optimizer_option()
    sequence_length: int | None = sequence_length_option()

    def problem(self) -> Problem:
        """Read the inputs; options override the job file.

        Raises a BadInputError with every fault of the first input that has any.
        """
        if is_profile(self.model):
            model = load_profile(self.model, sequence_length=self.sequence_length, to_plan=True)
            job = self._job(default_precision=model.precision)
        else:
            job = self._job(default_precision=self._default_precision(default_precision(self.model)))
            model = catalogue_model(self.model, precision=job.precision, sequence_length=self.sequence_length)
        cluster = load_cluster(self.cluster)
        require_devices(job.waves, cluster)
        if job.sharding is not None and (without := _sharding_without(job, model)):
            note(f"job: sharding {without}")
        problem = Problem(model=model, cluster=cluster, job=job)
        note_times(problem)
        note_unable(problem)
        return problem

    def _default_precision(self, usual: Precision) -> Precision:
        """The usual one, unless the framework of `--for` lacks it."""
        precisions = tuple(Precision) if self.framework is None else RULES[self.framework].precisions
        return usual if usual in precisions else precisions[0]

    def _job(self, *, default_precision: Precision) -> Job:
        """The job file, or the defaults without one, overridden by the options that were given."""
        read = None if self.job is None else read_job(self.job, default_precision=default_precision)
        waves = self.choices(None if read is None else read.waves)
        if waves is None:
            job = self._synchronous(read or self._defaults(default_precision))
        else:
            refuse_without_effect(SYNCHRONOUS)
            job = self._of_waves(read, waves, default_precision)
        precision = self.precision or job.precision
        job = replace(
            job,
            precision=precision,
            optimizer=self._optimizer(job, precision),
            recompute=self.recompute or job.recompute,
            framework=(framework := self.framework or job.framework),
            schedules=self._schedules_of(framework, job.schedules),
        )
        if read is not None:
            note_overridden(self, read)
        return job

    def _schedules_of(self, framework: Framework | None, stated: tuple[Schedule, ...]) -> tuple[Schedule, ...]:
        """The schedules that the framework has too; all of them if it has none, which the job refuses."""
        if framework is None:
            return stated
        rules = RULES[framework]
        kept = tuple(schedule for schedule in stated if schedule in rules.schedules)
        if kept and len(kept) < len(stated) and self.schedules is not None:
            missing = ", ".join(schedule for schedule in stated if schedule not in kept)
            note(f"--for {framework}: {rules.name} has no schedule {missing}, which is left out")
        return kept or stated

    def _of_waves(self, read: Job | None, waves: WaveChoices, precision: Precision) -> Job:
        """The job file, or the defaults, with the minibatch and the batch of a wave."""
        minibatch = minibatch_of(self.micro_batches, read)
        batch = batch_of(waves, minibatch, given=self.global_batch or (None if read is None else read.global_batch))
        stated = read or Job(
            global_batch=batch,
            optimizer=standard_optimizer("adamw", precision),
            precision=precision,
            micro_batches=(minibatch,),
        )
        return through_waves(stated, waves, minibatch=minibatch, batch=batch)

    def _synchronous(self, stated: Job) -> Job:
        given = {name: value for name in ("global_batch", *SYNCHRONOUS) if (value := getattr(self, name)) is not None}
        overrides: dict[str, Any] = {name: None if value == () else value for name, value in given.items()}
        if self.micro_batches is not None:
            overrides["micro_batches"] = self.micro_batches.of(self.global_batch or stated.global_batch)
            overrides["unequal"] = self.micro_batches.unequal
        job = replace(stated, waves=None, **overrides)
        if self.chunks is not None and Schedule.INTERLEAVED not in job.schedules:
            raise click.UsageError("'--chunks' needs the interleaved schedule: allow it with '--schedule'.")
        return job

    def _defaults(self, precision: Precision) -> Job:
        """A job with the default schedules."""
        if self.global_batch is None:
            raise click.UsageError("Missing option '--global-batch', or a '--job' file that states it.")
        return Job(
            global_batch=self.global_batch,
            optimizer=standard_optimizer("adamw", precision),
            precision=precision,
            schedules=DEFAULT_SCHEDULES,
        )

    def _optimizer(self, stated: Job, precision: Precision) -> Optimizer:
        """The requested optimizer, in bytes of the precision; a table of a job file stays as it is."""
        if self.optimizer is not None:
            return standard_optimizer(self.optimizer, precision)
        name = stated.optimizer.name
        if name in OPTIMIZERS and stated.optimizer == standard_optimizer(name, stated.precision):
            return standard_optimizer(name, precision)
        return stated.optimizer


def _sharding_without(job: Job, model: ModelProfile) -> str:
    """What of the sharding has no effect; empty if all of it has one."""
    if model.skip_edges:
        return "has no effect: the model has skip edges, of which operators do not tell"
    if job.tensor_parallel == (1,):
        return "has no effect: tensor_parallel allows a single device for each replica"
    if not any(layer.operators for layer in model.layers):
        return "divides samples only: no layer of the profile states its operators"
    return ""
