"""`plan convert`: other planners' files in, plans for training frameworks out."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

import click
from click.core import ParameterSource

from stagecut.planner.cli.options.convert import ConversionOutputs, Reading
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.notes import note
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import print_json, print_text
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.units import format_bytes, format_seconds
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.write import readable_text
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.profile import profile_of, to_tree
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, read_any_plan_file
from stagecut.planner.io.readers.conversion import Converted
from stagecut.planner.io.readers.formats import Format, convert, open_foreign
from stagecut.planner.io.writers.deepspeed import deepspeed_files, deepspeed_tree
from stagecut.planner.io.writers.megatron import megatron_arguments, megatron_files
from stagecut.planner.io.writers.torchtitan import schedule_rows, torchtitan_files, torchtitan_toml
from stagecut.planner.report.labels import count_label, counted_label
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.simulator.action_lists import plan_actions

TARGETS = ("megatron", "torchtitan", "deepspeed")
NO_WAVES = (
    "cannot express virtual workers that train through waves: it starts alike pipelines, which all-reduce gradients "
    "once per iteration; stagecut.executor.waves trains it, and --synchronisation all-reduce plans one to convert"
)
OF_READING = tuple(field.name for field in fields(Reading))
"""Parameters that say how to read a profile."""
OF_OWN_PROFILES = ("source", "name", "max_layers", "time_unit")
"""The ones that also apply to stagecut profiles."""


@click.command(
    "convert",
    cls=SectionCommand,
    epilog=example(
        "plan convert graph.txt --from pipedream --device-type V100 --micro-batch 64 -o profile.json",
        "plan convert plan.json --to megatron",
        "plan convert plan.json --to torchtitan --folder torchtitan",
    ),
)
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=InputFile(str))
@option_group(Reading, argument="reading")
@click.option("--to", "target", type=click.Choice(TARGETS), help="Write a plan for this framework.")
@option_group(ConversionOutputs, argument="outputs")
@general_options
@click.pass_context
def command(
    context: click.Context,
    files: tuple[str, ...],
    reading: Reading,
    target: str | None,
    outputs: ConversionOutputs,
    *,
    as_json: bool,
) -> None:
    """Read another planner's profile, or write a plan for a training framework.

    Without --to, FILE is a profile from Piper, PipeDream, DAPPLE, Metis or Galvatron, a workload of
    dnn-partitioning, or a table of layer times, one file per type of GPU; it becomes a profile for `plan solve`. A
    stagecut profile is accepted too, to merge its layers.
    With --to, FILE is a plan written by `plan solve`.
    """
    given = [name for name in OF_READING if context.get_parameter_source(name) is ParameterSource.COMMANDLINE]
    if outputs.schedule_csv is not None and target != "torchtitan":
        raise click.UsageError("--schedule-csv needs --to torchtitan")
    if outputs.folder is not None:
        _check_folder(target, outputs)
    if target is None:
        _read_profile(files, reading, outputs, given, as_json=as_json)
        return
    if given:
        raise click.UsageError(f"{_options(given)}: only for reading profiles, not for --to")
    if len(files) > 1:
        raise click.UsageError("--to writes one plan; name one file")
    _write_plan(files[0], target, outputs, as_json=as_json)


def _options(parameters: Iterable[str]) -> str:
    flags = {"source": "--from", "num_layers": "--layers"}
    return ", ".join(flags.get(name, f"--{name.replace('_', '-')}") for name in parameters)


def _check_folder(target: str | None, outputs: ConversionOutputs) -> None:
    if target is None:
        raise click.UsageError("--folder needs --to; name the profile to write with -o")
    for flag, path in (("-o", outputs.output), ("--schedule-csv", outputs.schedule_csv)):
        if path is not None:
            raise click.UsageError(f"{flag}: not with --folder, which has all files of the plan in it")


def _read_profile(
    files: tuple[str, ...], reading: Reading, outputs: ConversionOutputs, given: Sequence[str], *, as_json: bool
) -> None:
    if outputs.output is None:
        raise click.UsageError("name the profile to write with -o, or the framework to write a plan for with --to")
    outputs.check()
    opened = [open_foreign(path, reading.source) for path in files]
    kind = reading.source or opened[0].format
    without_effect = [name for name in given if name not in OF_OWN_PROFILES]
    if kind is Format.PROFILE and without_effect:
        raise click.UsageError(f"{_options(without_effect)}: {files[0]} is a stagecut profile and states this itself")
    choices = reading.choices(files, kind)
    conversion = convert(opened, kind, choices, bytes_from=reading.bytes_profile())
    outputs.write(outputs.output, readable_text(to_tree(conversion.profile), profile_of, path=outputs.output))
    for text in () if outputs.quiet else conversion.notes:
        note(text)
    if as_json:
        print_json(answer(conversion, kind, output=outputs.output))
    else:
        print_conversion(conversion, kind)


def _write_plan(path: str, target: str, outputs: ConversionOutputs, *, as_json: bool) -> None:
    outputs.check()
    plan_file = read_any_plan_file(path)
    if isinstance(plan_file, WavePlanFile):
        raise UnsupportedError(f"{path}: {target} {NO_WAVES}")
    if outputs.folder is None:
        _write_text(path, plan_file, target, outputs, as_json=as_json)
        return
    files = _folder_files(plan_file, target)
    outputs.write_folder(outputs.folder, files)
    if as_json:
        print_json({**_written(path, target, outputs), "files": sorted(files)})


def _write_text(path: str, plan_file: PlanFile, target: str, outputs: ConversionOutputs, *, as_json: bool) -> None:
    text = _plan_text(plan_file, target, outputs.schedule_csv)
    if outputs.schedule_csv is not None:
        outputs.write(outputs.schedule_csv, schedule_rows(_action_names(plan_file)))
    if outputs.output is not None:
        outputs.write(outputs.output, text)
    if as_json:
        print_json({**_written(path, target, outputs), "text": text})
    elif outputs.output is None:
        print_text(text)


def _written(path: str, target: str, outputs: ConversionOutputs) -> dict[str, object]:
    """What the answers have in common."""
    written = {"output": outputs.output, "schedule_csv": outputs.schedule_csv, "folder": outputs.folder}
    paths = {key: None if file is None else str(file) for key, file in written.items()}
    return {"schema": SCHEMA, "plan": path, "target": target, "text": None, "files": [], **paths}


def _folder_files(plan_file: PlanFile, target: str) -> dict[str, str]:
    problem, plan = plan_file.problem, plan_file.plan
    if target == "megatron":
        return megatron_files(problem, plan)
    if target == "deepspeed":
        return deepspeed_files(problem, plan)
    return torchtitan_files(problem, plan, actions=_action_names(plan_file))


def _plan_text(plan_file: PlanFile, target: str, schedule_csv: Path | None) -> str:
    problem, plan = plan_file.problem, plan_file.plan
    if target == "megatron":
        return megatron_arguments(problem, plan)
    if target == "deepspeed":
        return format_json(deepspeed_tree(problem, plan))
    return torchtitan_toml(problem, plan, schedule_csv=None if schedule_csv is None else str(schedule_csv))


def _action_names(plan_file: PlanFile) -> list[list[str]]:
    """The actions of each device group in the notation of torch.distributed.pipelining."""
    plan = plan_file.plan
    return [
        [f"{action.stage}{action.op}{action.lo // plan.micro_batch}" for action in actions]
        for actions in plan_actions(plan)
    ]


def print_conversion(conversion: Converted, kind: Format) -> None:
    """A few lines for people."""
    profile = conversion.profile
    nodes = f"{conversion.num_nodes} {'layers of a profile' if kind is Format.PROFILE else f'nodes of {kind}'}"
    edges = f", {len(profile.skip_edges)} skip edges" if profile.skip_edges else ""
    click.echo(f"{profile.name}: {profile.num_layers} layers from {nodes}{edges}")
    inner = profile.boundary_bytes()[1:-1]
    line = f"{count_label(profile.num_params)} parameters in {profile.precision}"
    if len(inner):
        line += f", {format_bytes(inner.min())} to {format_bytes(inner.max())} per sample across a boundary"
    click.echo(line)
    for device_type, (samples, forward_s, backward_s) in _times(profile).items():
        times = f"{format_seconds(forward_s)} forward, {format_seconds(backward_s)} backward"
        click.echo(f"{device_type}: {times} for {counted_label(samples, 'sample')}")


def answer(conversion: Converted, kind: Format, *, output: Path) -> dict[str, object]:
    """The same as JSON."""
    profile = conversion.profile
    inner = profile.boundary_bytes()[1:-1].tolist()
    return {
        "schema": SCHEMA,
        "format": str(kind),
        "output": str(output),
        "name": profile.name,
        "precision": str(profile.precision),
        "num_nodes": conversion.num_nodes,
        "num_layers": profile.num_layers,
        "num_skip_edges": len(profile.skip_edges),
        "params_bytes": sum(layer.params_bytes for layer in profile.layers),
        "smallest_boundary_bytes": min(inner, default=0.0),
        "largest_boundary_bytes": max(inner, default=0.0),
        "device_types": [
            {"device_type": name, "samples": samples, "forward_s": forward_s, "backward_s": backward_s}
            for name, (samples, forward_s, backward_s) in _times(profile).items()
        ],
        "notes": list(conversion.notes),
    }


def _times(profile: ModelProfile) -> dict[str, tuple[int, float, float]]:
    """Smallest micro-batch size, and seconds of the model's forward and backward at it, by device type."""
    totals: dict[str, tuple[int, float, float]] = {}
    for table in (table for layer in profile.layers for table in layer.times if table.tensor_parallel == 1):
        _, forward_s, backward_s = totals.get(table.device_type, (0, 0.0, 0.0))
        totals[table.device_type] = (table.samples[0], forward_s + table.forward_s[0], backward_s + table.backward_s[0])
    return totals
