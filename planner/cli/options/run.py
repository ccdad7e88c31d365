"""Options that say how to run a plan."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from stagecut.planner.cli.options.files import ModuleFunction
from stagecut.planner.cli.options.groups import Command, option_group
from stagecut.planner.cli.options.search import LARGEST_SEED
from stagecut.planner.cli.options.types import time_scale
from stagecut.planner.core.run_record import RunMode

if TYPE_CHECKING:
    from stagecut.executor.run.options import RunOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class RunChoices:
    """What the options say of the run itself."""

    steps: int
    warmup: int
    mode: str
    device: str
    check: bool
    layers: str | None
    seed: int
    learning_rate: float
    autocast: str | None
    real_layers: bool
    time_scale: float | None

    def refuse_idle(self) -> None:
        """Complain of options that the mode has no use for.

        Raises
        ------
        UsageError
            With what to do about it.
        """
        for name, given in (("--time-scale", self.time_scale is not None), ("--real-layers", self.real_layers)):
            if given and self.mode != RunMode.DILATED:
                raise click.UsageError(f"{name} is for --mode dilated")

    @property
    def stand_ins(self) -> bool:
        """Whether small layers take the place of the model's."""
        return self.mode == RunMode.DILATED and self.layers is None and not self.real_layers

    def options(self, timeout_s: float) -> "RunOptions":
        """The same for the executor, which needs torch."""
        from stagecut.executor.run.options import RunOptions

        return RunOptions(
            num_steps=self.steps,
            warmup=self.warmup,
            mode=RunMode(self.mode),
            timeout_s=timeout_s,
            device="cpu" if self.mode == RunMode.DILATED and self.device == "auto" else self.device,
            check=self.check,
            layers=self.layers,
            seed=self.seed,
            learning_rate=self.learning_rate,
            autocast=self.autocast,
            stand_ins=self.stand_ins,
            time_scale=self.time_scale,
        )


def run_options(command: Command) -> Command:
    """Give a command the options of a run, as its argument `choices`."""
    steps, seed = click.IntRange(1, 10**9), click.IntRange(0, LARGEST_SEED)
    options = (
        click.option("--steps", type=steps, default=10, show_default=True, help="Training steps to measure."),
        click.option(
            "--warmup", type=click.IntRange(0, 10**9), default=2, show_default=True, help="Steps before them."
        ),
        click.option(
            "--mode",
            type=click.Choice([str(mode) for mode in RunMode]),
            default=str(RunMode.REAL),
            show_default=True,
            help="dilated: hold actions and messages to the times of the plan.",
        ),
        click.option(
            "--device",
            type=click.Choice(["auto", "cpu", "cuda"]),
            default="auto",
            show_default=True,
            help="auto: GPUs where there is one for each device of the plan.",
        ),
        click.option("--check", is_flag=True, help="Compare a step with a single process, in float64."),
        click.option(
            "--layers",
            type=ModuleFunction(),
            metavar="MODULE:FUNCTION",
            help="The model's layers, where it is not of the catalogue.",
        ),
        click.option("--seed", type=seed, default=0, show_default=True, help="Of weights and samples."),
        click.option("--learning-rate", type=float, default=1e-3, show_default=True, help="Of the job's optimizer."),
        click.option("--autocast", type=click.Choice(["bf16", "fp16"]), help="Compute in this precision."),
        click.option(
            "--real-layers", is_flag=True, help="dilated: the model's own layers, not small ones in their place."
        ),
        click.option(
            "--time-scale",
            type=time_scale,
            metavar="X|auto",
            default="auto",
            show_default=True,
            help="dilated: everything takes X times as long as planned; auto: as long as this machine needs.",
        ),
    )
    return option_group(command, options, argument="choices", build=RunChoices)
