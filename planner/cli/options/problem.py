"""Options that say what is to be planned, and the problem they make."""

from dataclasses import dataclass, replace
from pathlib import Path

import click

from stagecut.planner.cli.options.files import InputFile, NameOrFile
from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.inputs import catalogue_model, is_profile, load_cluster, load_profile
from stagecut.planner.cli.options.types import MAX_COUNT, counts, counts_or_auto, slices, words_of
from stagecut.planner.core.job import Job, Optimizer, Recompute, SliceChoice, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.files.job import read_job

OPTIMIZERS = ("adamw", "sgd")
MAX_SECONDS = 1e6
DEFAULT_SCHEDULES = (Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B)
"""Without a job file; the others are for those who ask for them by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemChoices:
    """The options as they were given; None where left out."""

    model: str
    cluster: str
    global_batch: int | None
    job: Path | None
    micro_batch: tuple[int, ...] | None
    schedule: tuple[str, ...] | None
    recompute: str | None
    replicas: tuple[int, ...] | None
    """Empty for `auto`."""
    tensor_parallel: tuple[int, ...] | None
    """Empty for `auto`."""
    pipelines: tuple[int, ...] | None
    """Empty for `auto`."""
    zero1: bool | None
    chunks: tuple[int, ...] | None
    slice: SliceChoice | None
    action_overhead: float | None
    precision: str | None
    optimizer: str | None
    sequence_length: int | None

    def problem(self) -> Problem:
        """Read the inputs; options go before what the job file says.

        Raises
        ------
        BadInputError
            With every fault of the first input that has any.
        """
        if is_profile(self.model):
            model = load_profile(self.model, sequence_length=self.sequence_length, to_plan=True)
            job = self._job(default_precision=model.precision)
        else:
            job = self._job(default_precision=Precision.FP16)
            model = catalogue_model(self.model, precision=job.precision, sequence_length=self.sequence_length)
        if self.chunks is not None and Schedule.INTERLEAVED not in job.schedules:
            raise click.UsageError("'--chunks' is for the schedule interleaved: allow it with '--schedule'.")
        return Problem(model=model, cluster=load_cluster(self.cluster), job=job)

    def _job(self, *, default_precision: Precision) -> Job:
        stated = self._stated_job(default_precision)
        precision = stated.precision if self.precision is None else Precision(self.precision)
        return replace(
            stated,
            global_batch=stated.global_batch if self.global_batch is None else self.global_batch,
            precision=precision,
            optimizer=self._optimizer(stated, precision),
            micro_batches=stated.micro_batches if self.micro_batch is None else self.micro_batch,
            schedules=stated.schedules if self.schedule is None else tuple(map(Schedule, self.schedule)),
            recompute=stated.recompute if self.recompute is None else Recompute(self.recompute),
            replicas=_chosen(self.replicas, stated.replicas),
            tensor_parallel=_chosen(self.tensor_parallel, stated.tensor_parallel),
            pipelines=_chosen(self.pipelines, stated.pipelines),
            zero1=stated.zero1 if self.zero1 is None else self.zero1,
            chunks=self.chunks or stated.chunks,
            slice=stated.slice if self.slice is None else self.slice,
            action_overhead_s=stated.action_overhead_s if self.action_overhead is None else self.action_overhead,
        )

    def _stated_job(self, default_precision: Precision) -> Job:
        """The job file; without one, the default schedules are allowed, the rest is as in a file that says nothing."""
        if self.job is not None:
            return read_job(self.job, default_precision=default_precision)
        if self.global_batch is None:
            raise click.UsageError("Missing option '--global-batch', or a '--job' file that states it.")
        return Job(
            global_batch=self.global_batch,
            optimizer=standard_optimizer("adamw", default_precision),
            precision=default_precision,
            schedules=DEFAULT_SCHEDULES,
        )

    def _optimizer(self, stated: Job, precision: Precision) -> Optimizer:
        """The optimizer that is asked for, in bytes of the precision; a table of a job file stays as it is."""
        if self.optimizer is not None:
            return standard_optimizer(self.optimizer, precision)
        name = stated.optimizer.name
        if name in OPTIMIZERS and stated.optimizer == standard_optimizer(name, stated.precision):
            return standard_optimizer(name, precision)
        return stated.optimizer


def _chosen(given: tuple[int, ...] | None, stated: tuple[int, ...] | None) -> tuple[int, ...] | None:
    """What an option of counts says, or the job file where it was left out; None for `auto`."""
    return stated if given is None else given or None


def problem_options(command: Command) -> Command:
    """Give a command the options of a problem, as its argument `choices`."""
    options = (
        click.option(
            "--model",
            type=NameOrFile(),
            required=True,
            metavar="NAME|FILE",
            help="Model of the catalogue, or a profile file.",
        ),
        click.option(
            "--cluster",
            type=NameOrFile(),
            required=True,
            metavar="NAME|FILE",
            help="Cluster of the catalogue, or a file.",
        ),
        click.option("--global-batch", type=click.IntRange(max=MAX_COUNT), metavar="N", help="Samples per iteration."),
        click.option(
            "--job",
            type=InputFile(),
            metavar="FILE",
            help="Job file; the options below go before what it says.",
        ),
        click.option("--micro-batch", type=counts, metavar="1,2,4", help="Allowed sizes.  [default: 1,2,4,8]"),
        click.option(
            "--schedule",
            type=words_of([str(schedule) for schedule in Schedule]),
            metavar="LIST|all",
            help="Allowed schedules: gpipe, 1f1b, eager-1f1b, interleaved.  [default: all but interleaved]",
        ),
        click.option(
            "--recompute",
            type=click.Choice([str(policy) for policy in Recompute]),
            help="Whether stages compute activations again.  [default: auto: where they would not fit otherwise]",
        ),
        click.option(
            "--replicas",
            type=counts_or_auto,
            metavar="1,2|1-4|auto",
            help="Allowed replicas of a stage; auto: any that divide the micro-batch.  [default: auto]",
        ),
        click.option(
            "--tensor-parallel",
            type=counts_or_auto,
            metavar="1,2,4|auto",
            help="Allowed devices that share a replica; auto: powers of two inside an island.  [default: auto]",
        ),
        click.option(
            "--pipelines",
            type=counts_or_auto,
            metavar="1,2|1-4|auto",
            help="Allowed numbers of identical pipelines; auto: any with equal shares.  [default: auto]",
        ),
        click.option(
            "--zero1/--no-zero1",
            default=None,
            help="Whether replicas and pipelines divide the optimizer state among them.  [default: no]",
        ),
        click.option("--chunks", type=counts, metavar="2,3", help="Stages per device under interleaved.  [default: 2]"),
        click.option(
            "--slice",
            type=slices,
            metavar="auto|never|N",
            help="First micro-batches whose warm-up forwards are halved; auto: as many as pay.  [default: never]",
        ),
        click.option(
            "--action-overhead",
            type=click.FloatRange(0, MAX_SECONDS),
            metavar="SECONDS",
            help="What half a forward takes on top of its computation.  [default: 0.0004]",
        ),
        click.option(
            "--precision",
            type=click.Choice([str(precision) for precision in Precision]),
            help="Number format of training.  [default: fp16, or the profile's]",
        ),
        click.option(
            "--optimizer", type=click.Choice(OPTIMIZERS), help="Decides bytes per parameter.  [default: adamw]"
        ),
        click.option(
            "--sequence-length",
            type=click.IntRange(1, MAX_COUNT),
            metavar="TOKENS",
            help="Tokens of one sample.  [default: the model's]",
        ),
    )
    return option_group(command, options, argument="choices", build=ProblemChoices)
