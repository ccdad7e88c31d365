"""Options of `plan run`: how to run a plan, and which files to write."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click

from stagecut.planner.analysis.stated_options import LARGEST_SEED
from stagecut.planner.cli.options.outputs import Outputs
from stagecut.planner.cli.parameters.files import ModuleFunction, output_option
from stagecut.planner.cli.parameters.groups import member_option, option
from stagecut.planner.cli.parameters.types import COUNT, time_limit, time_scale
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.documents.fields import MAX_COUNT
from stagecut.planner.io.documents.write import check_writable
from stagecut.planner.io.files.run_history import DEFAULT_HISTORY, check_appendable

if TYPE_CHECKING:
    from stagecut.executor.run.options import RunOptions

LONGEST_TIMEOUT_S = 1e6
"""Timeout where no limit is asked for: eleven days."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """What to run, and how."""

    HEADING: ClassVar[str] = "What to run, and how"

    steps: int = option("--steps", type=COUNT, default=10, help="Training steps to measure.")
    warmup: int = option(
        "--warmup", type=click.IntRange(0, MAX_COUNT), default=2, help="Unmeasured warm-up steps before them."
    )
    mode: RunMode = member_option(
        "--mode",
        members=RunMode,
        default=str(RunMode.REAL),
        help="real: train at full speed; dilated: hold actions and messages to the planned times.",
    )
    device: str = option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        help="Where to run; auto: on GPUs if there is one per device of the plan, else on the CPU.",
    )
    check: bool = option("--check", is_flag=True, help="Compare one step with a single process, in float64.")
    layers: str | None = option(
        "--layers",
        type=ModuleFunction(),
        metavar="MODULE:FUNCTION",
        help="Function that returns the model's layers, for models outside the catalogue.",
    )
    seed: int = option(
        "--seed", type=click.IntRange(0, LARGEST_SEED), default=0, help="Random seed of weights and samples."
    )
    learning_rate: float = option(
        "--learning-rate", type=float, default=1e-3, help="Learning rate of the job's optimizer."
    )
    autocast: str | None = option(
        "--autocast", type=click.Choice(["bf16", "fp16"]), help="Compute in this precision through autocast."
    )
    real_layers: bool = option(
        "--real-layers", is_flag=True, help="dilated: run the model's own layers instead of small stand-ins."
    )
    time_scale: float | None = option(
        "--time-scale",
        type=time_scale,
        metavar="X|auto",
        default="auto",
        help="dilated: take X times as long as planned; auto: the smallest factor that this machine keeps up with.",
    )
    timeout: float | None = option(
        "--timeout",
        type=time_limit,
        metavar="SECONDS",
        default="120",
        help="How long a rank waits for another, in seconds; none or 0 for no limit.",
    )
    max_restarts: int = option(
        "--max-restarts",
        type=click.IntRange(0, 1000),
        default=0,
        help="How many times to restart all ranks after one of them failed.",
    )
    one_process: bool | None = option(
        "--one-process/--own-processes",
        default=None,
        show_default=False,
        help="Run all ranks as threads of one process on one device, or each rank in a process of its own.  "
        "[default: own processes; in dilated mode one process]",
    )

    drop_workers: bool = option(
        "--drop-workers", is_flag=True, help="Go on without a virtual worker of which a rank dies."
    )

    def check_mode(self) -> None:
        """Raise a UsageError if an option has no effect in this mode."""
        if self.drop_workers and (self.one_process or self.mode is RunMode.DILATED):
            raise click.UsageError("--drop-workers requires a process for each rank: threads do not die one by one")
        for name, given in (("--time-scale", self.time_scale is not None), ("--real-layers", self.real_layers)):
            if given and self.mode is not RunMode.DILATED:
                raise click.UsageError(f"{name} requires --mode dilated")

    @property
    def timeout_s(self) -> float:
        """How long a rank waits for another, in seconds."""
        return LONGEST_TIMEOUT_S if self.timeout is None else min(self.timeout, LONGEST_TIMEOUT_S)

    def options(self) -> "RunOptions":
        """The same for the executor, which needs torch."""
        from stagecut.executor.run.options import RunOptions

        is_dilated = self.mode is RunMode.DILATED
        return RunOptions(
            num_steps=self.steps,
            warmup=self.warmup,
            mode=self.mode,
            timeout_s=self.timeout_s,
            device="cpu" if is_dilated and self.device == "auto" else self.device,
            check=self.check,
            layers=self.layers,
            seed=self.seed,
            learning_rate=self.learning_rate,
            autocast=self.autocast,
            stand_ins=is_dilated and self.layers is None and not self.real_layers,
            time_scale=self.time_scale,
            drop_workers=self.drop_workers,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutputs(Outputs):
    """Files that a run is written to."""

    output: Path | None = output_option("-o", "--output", text="Write the record of the run.")
    trace: Path | None = output_option(
        "--trace", text="Write a trace of a step, or of some waves, as predicted and as measured, for ui.perfetto.dev."
    )
    history: Path = output_option(
        "--history", default=DEFAULT_HISTORY, text="Append the record of the run to this file."
    )

    def check(self) -> None:
        """Raise an OutputError now if a file could not be written later."""
        for path in self.paths:
            if path == self.history:
                check_appendable(path)
            else:
                check_writable(path, force=self.force)
