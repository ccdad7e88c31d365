"""Options that lay out a plan by hand."""

from dataclasses import dataclass, fields
from typing import Any, ClassVar

import click

from stagecut.planner.analysis.layout import Layout
from stagecut.planner.cli.options.problem import ProblemChoices
from stagecut.planner.cli.options.training import optimizer_option, precision_option, sequence_length_option
from stagecut.planner.cli.parameters.files import NameOrFile
from stagecut.planner.cli.parameters.groups import flags_given, member_option, option
from stagecut.planner.cli.parameters.types import COUNT, MicroBatches, numbers
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutOptions:
    """A layout and its inputs; None where left out."""

    HEADING: ClassVar[str] = "Layout by hand"

    model: str | None = option(
        "--model", type=NameOrFile(), metavar="NAME|FILE", help="Catalogue model or profile file."
    )
    cluster: str | None = option(
        "--cluster", type=NameOrFile(), metavar="NAME|FILE", help="Catalogue cluster or cluster file."
    )
    global_batch: int | None = option("--global-batch", type=COUNT, help="Samples per iteration.")
    micro_batch: int = option("--micro-batch", type=COUNT, default=1, help="Samples per micro-batch.")
    stages: int | None = option(
        "--stages", type=COUNT, help="Stages of each pipeline.  [default: as many as --cuts lists]"
    )
    cuts: tuple[int, ...] | None = option(
        "--cuts",
        type=numbers,
        metavar="0,8,16,24",
        help="First layer of every stage; 'plan models show NAME' numbers them.  [default: equal layer counts]",
    )
    tensor_parallel: tuple[int, ...] = option(
        "--tensor-parallel",
        type=numbers,
        default="1",
        metavar="N|N,N,...",
        help="Devices that share each replica: one number, or one for each device group.",
    )
    replicas: tuple[int, ...] = option(
        "--replicas",
        type=numbers,
        default="1",
        metavar="N|N,N,...",
        help="Replicas of each stage, which divide the micro-batch: one number, or one for each device group.",
    )
    pipelines: int = option("--pipelines", type=COUNT, default=1, help="Identical pipelines.")
    schedule: Schedule = member_option(
        "--schedule", members=Schedule, default=str(Schedule.ONE_F_ONE_B), help="Pipeline schedule."
    )
    chunks: int | None = option("--chunks", type=COUNT, help="Stages per device group under interleaved.  [default: 2]")
    recompute: Recompute = member_option(
        "--recompute",
        members=Recompute,
        default=str(Recompute.AUTO),
        help="Whether stages recompute activations; auto: only those that would not fit otherwise.",
    )
    zero1: bool = option(
        "--zero1", is_flag=True, help="Shard the optimizer state over replicas and pipelines (ZeRO-1)."
    )
    servers: str | None = option(
        "--servers",
        metavar="NAME,...",
        help="Server classes to use, filled in this order.  [default: all, in the cluster's order]",
    )
    precision: Precision | None = precision_option()
    optimizer: str | None = optimizer_option()
    sequence_length: int | None = sequence_length_option()

    def refuse(self) -> None:
        """Raise a usage error if the command line states any of these options, beside a plan file."""
        if flags := flags_given(field.name for field in fields(self)):
            raise click.UsageError(f"{flags}: no effect with a plan file, which has all of it.")

    def require_inputs(self) -> None:
        """Raise a usage error if an input is missing."""
        for name in ("model", "cluster", "global_batch"):
            if getattr(self, name) is None:
                flag = f"--{name.replace('_', '-')}"
                raise click.UsageError(f"Missing option '{flag}', or a plan file in the place of all options.")

    def problem(self) -> Problem:
        """Read the inputs; the job allows nothing but what the layout takes. Raises a BadInputError for faults."""
        if self.chunks is not None and self.schedule is not Schedule.INTERLEAVED:
            raise click.UsageError("'--chunks' needs '--schedule interleaved'.")
        same = ("model", "cluster", "global_batch", "recompute", "zero1", "precision", "optimizer", "sequence_length")
        choices: dict[str, Any] = dict.fromkeys(field.name for field in fields(ProblemChoices))
        choices |= {name: getattr(self, name) for name in same}
        choices |= {
            "micro_batches": MicroBatches(sizes=(self.micro_batch,)),
            "schedules": (self.schedule,),
            "replicas": tuple(sorted(set(self.replicas))),
            "tensor_parallel": tuple(sorted(set(self.tensor_parallel))),
            "pipelines": (self.pipelines,),
            "chunks": None if self.schedule is not Schedule.INTERLEAVED else (self.chunks or 2,),
        }
        return ProblemChoices(**choices).problem()

    def layout(self) -> Layout:
        """The stages and their devices."""
        num_stages = self.stages or (None if self.cuts is None else len(self.cuts))
        if num_stages is None:
            raise click.UsageError("Missing option '--stages', or '--cuts' with the first layer of every stage.")
        return Layout(
            num_stages=num_stages,
            first_layers=self.cuts or (),
            replicas=self.replicas,
            tensor_parallel=self.tensor_parallel,
            servers=() if self.servers is None else tuple(name.strip() for name in self.servers.split(",")),
        )
