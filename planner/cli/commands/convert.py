"""`plan convert`: other planners' files in, plans for training frameworks out."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import click
from click.core import ParameterSource

from stagecut.planner.cli.options.convert import Reading, reading_options
from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile, OutputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import announce, print_json, print_text, write_file
from stagecut.planner.cli.views.convert import answer, print_conversion
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.visible import visible
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.readable import readable_text
from stagecut.planner.io.documents.write import check_writable
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file
from stagecut.planner.io.files.profile import profile_of, to_tree
from stagecut.planner.io.readers.formats import Format, convert, open_foreign
from stagecut.planner.io.writers.deepspeed import deepspeed_tree
from stagecut.planner.io.writers.megatron import megatron_arguments
from stagecut.planner.io.writers.torchtitan import schedule_rows, torchtitan_toml
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.simulator.action_lists import plan_actions

TARGETS = ("megatron", "torchtitan", "deepspeed")
OF_READING = tuple(field.name for field in fields(Reading))
"""Parameters that say how to read a profile."""
OF_OWN_PROFILES = ("source", "name", "max_layers")
"""Those of them that a profile of ours leaves open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Writing:
    """Where results go."""

    output: Path | None
    schedule_csv: Path | None
    force: bool
    quiet: bool

    def check(self) -> None:
        """Complain now of what could not be written later."""
        for path in (self.output, self.schedule_csv):
            if path is not None:
                check_writable(path, force=self.force)

    def write(self, path: Path, text: str) -> None:
        """Write a file, and say so."""
        write_file(path, text, force=self.force)
        if not self.quiet:
            announce([path])


@click.command(
    "convert",
    epilog=example(
        "plan convert graph.txt --from pipedream --device-type V100 --micro-batch 64 -o profile.json",
        "plan convert plan.json --to megatron",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=InputFile(str))
@reading_options
@click.option("--to", "target", type=click.Choice(TARGETS), help="Write a plan for this framework.")
@click.option(
    "--schedule-csv",
    type=OutputFile(),
    metavar="FILE",
    help="For torchtitan, write the order of the actions as well, and use it.",
)
@click.option(
    "-o",
    "--output",
    type=OutputFile(),
    metavar="FILE",
    help="The file to write; a plan for a framework goes to stdout without it.",
)
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    reading: Reading,
    target: str | None,
    schedule_csv: Path | None,
    output: Path | None,
    *,
    force: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Read another planner's profile, or write a plan for a training framework.

    Without --to, FILE is a profile of Piper, PipeDream or DAPPLE, a workload of dnn-partitioning, or
    tables of layer times, one file for each kind of GPU; it becomes a profile for `plan solve`. A
    profile of stagecut itself may be given to merge its layers.
    With --to, FILE is a plan of `plan solve`.
    """
    writing = _Writing(output=output, schedule_csv=schedule_csv, force=force, quiet=quiet)
    given = [name for name in OF_READING if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if target is None:
        _read_profile(files, reading, writing, given, as_json=as_json)
        return
    if given:
        raise click.UsageError(f"{_options(given)}: for profiles that are read; leave out with --to")
    if len(files) > 1:
        raise click.UsageError("--to writes one plan; name one file")
    _write_plan(files[0], target, writing, as_json=as_json)


def _options(parameters: Iterable[str]) -> str:
    return ", ".join("--from" if name == "source" else f"--{name.replace('_', '-')}" for name in parameters)


def _read_profile(
    files: tuple[str, ...], reading: Reading, writing: _Writing, given: Sequence[str], *, as_json: bool
) -> None:
    if writing.output is None:
        raise click.UsageError("name the profile to write with -o, or with --to the framework to write a plan for")
    if writing.schedule_csv is not None:
        raise click.UsageError("--schedule-csv is for --to torchtitan")
    writing.check()
    stated = None if reading.source is None else Format(reading.source)
    opened = [open_foreign(path, stated) for path in files]
    kind = stated or opened[0].format
    without_effect = [name for name in given if name not in OF_OWN_PROFILES]
    if kind is Format.PROFILE and without_effect:
        raise click.UsageError(
            f"{_options(without_effect)}: {files[0]} is a profile of stagecut, which says that itself"
        )
    choices = reading.choices(files, kind)
    conversion = convert(opened, kind, choices, bytes_from=reading.bytes_profile())
    writing.write(writing.output, readable_text(to_tree(conversion.profile), profile_of, path=writing.output))
    if not writing.quiet:
        for note in conversion.notes:
            click.echo(f"note: {visible(note)}", err=True)
    if as_json:
        print_json(answer(conversion, kind, output=writing.output))
    else:
        print_conversion(conversion, kind)


def _write_plan(path: str, target: str, writing: _Writing, *, as_json: bool) -> None:
    if writing.schedule_csv is not None and target != "torchtitan":
        raise click.UsageError("--schedule-csv is for --to torchtitan")
    writing.check()
    plan_file = read_plan_file(path)
    text = _plan_text(plan_file, target, writing.schedule_csv)
    if writing.schedule_csv is not None:
        writing.write(writing.schedule_csv, schedule_rows(_action_names(plan_file.plan)))
    if writing.output is not None:
        writing.write(writing.output, text)
    if as_json:
        written = {"output": writing.output, "schedule_csv": writing.schedule_csv}
        paths = {key: None if file is None else str(file) for key, file in written.items()}
        print_json({"schema": SCHEMA, "plan": path, "target": target, "text": text, **paths})
    elif writing.output is None:
        print_text(text)


def _plan_text(plan_file: PlanFile, target: str, schedule_csv: Path | None) -> str:
    problem, plan = plan_file.problem, plan_file.plan
    if target == "megatron":
        return megatron_arguments(problem, plan)
    if target == "deepspeed":
        return format_json(deepspeed_tree(problem, plan))
    return torchtitan_toml(problem, plan, schedule_csv=None if schedule_csv is None else str(schedule_csv))


def _action_names(plan: Plan) -> list[list[str]]:
    """What each device group does, as torch.distributed.pipelining writes it."""
    return [
        [f"{action.stage}{action.op}{action.lo // plan.micro_batch}" for action in actions]
        for actions in plan_actions(plan)
    ]
