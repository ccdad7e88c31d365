"""`plan run`: run a plan on torch and measure it."""

from pathlib import Path

import click

from stagecut.planner.cli.commands.run_steps import StepRun
from stagecut.planner.cli.commands.run_waves import WaveRun
from stagecut.planner.cli.options.profile import require_torch
from stagecut.planner.cli.options.run import RunChoices, RunOutputs
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group, quiet_option
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.wave_plan_file import read_any_plan_file

ARGUMENTS = "stagecut.planner.cli.arguments"
"""Key of the context under which the command's own arguments are kept."""


class RepeatableCommand(SectionCommand):
    """A command that remembers its arguments, with which it starts itself again in other processes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See :meth:`click.Command.parse_args`."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


@click.command(
    "run",
    cls=RepeatableCommand,
    epilog=example("plan run plan.json --steps 20 --check", "plan run plan.json --mode dilated --trace run.json"),
)
@click.argument("path", metavar="PLAN", type=InputFile())
@option_group(RunChoices, argument="choices")
@option_group(RunOutputs, argument="outputs")
@quiet_option
@general_options
@click.pass_context
def command(
    context: click.Context, path: Path, choices: RunChoices, outputs: RunOutputs, *, quiet: bool, as_json: bool
) -> None:
    """Run a plan on torch and measure it.

    Starts one process per device of the plan on this machine, trains a few steps on random samples, and
    shows measured beside predicted times. In dilated mode any plan runs on this machine: small layers take
    as long as the plan says. Under torchrun this process is one rank of a run on several hosts.
    A plan of virtual workers also gets a process for each parameter server; its steps are waves.
    Exits with code 6 if --check finds a difference.
    """
    from stagecut.executor.ranks.environment import is_rank
    from stagecut.executor.ranks.rank_process import become_rank

    if is_rank():
        become_rank()
    require_torch("plan run")
    choices.check_mode()
    plan_file = read_any_plan_file(path)
    run: StepRun | WaveRun
    if isinstance(plan_file, PlanFile):
        run = StepRun(plan_file, choices, outputs, quiet=quiet, as_json=as_json)
    else:
        run = WaveRun(plan_file, choices, outputs, quiet=quiet, as_json=as_json)
    if is_rank():
        run.be_rank()
        return
    outputs.check()
    run.start(context.meta[ARGUMENTS])
