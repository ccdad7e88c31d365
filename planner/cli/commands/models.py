"""`plan models`: list the models of the catalogue or show one."""

import click

from stagecut.models import build_model, describe_model, measured_names, model_names
from stagecut.planner.cli.parameters.catalogue import (
    catalogue_model,
    default_precision,
    is_file_name,
    is_profile,
    load_profile,
)
from stagecut.planner.cli.parameters.files import NameOrFile
from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.parameters.types import COUNT
from stagecut.planner.cli.process.writing import print_json, print_text
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.precision import Precision
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.profile import to_tree
from stagecut.planner.report.labels import count_label
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.tables import layer_table, model_table
from stagecut.planner.report.text_table import print_table


@click.group("models", invoke_without_command=True, epilog=example("plan models", "plan models show gpt2-xl"))
@general_options
@click.pass_context
def command(context: click.Context, *, as_json: bool) -> None:
    """List the models of the catalogue or show one."""
    if context.invoked_subcommand is not None:
        return
    models = [build_model(name) for name in (*model_names(), *measured_names())]
    if as_json:
        print_json({"schema": SCHEMA, "models": [_summary(model) for model in models]})
    else:
        print_table(model_table(models))


@command.command("show", epilog=example("plan models show gpt2-xl", "plan models show gpt2-xl --json > my-model.json"))
@click.argument("name", metavar="NAME|FILE", type=NameOrFile())
@click.option(
    "--precision",
    type=click.Choice([str(precision) for precision in Precision]),
    help="Precision in which to count bytes.  [default: fp16]",
)
@click.option("--sequence-length", type=COUNT, metavar="TOKENS", help="Tokens per sample.  [default: the model's]")
@general_options
def show(name: str, precision: str | None, sequence_length: int | None, *, as_json: bool) -> None:
    """Show the layers of one model.

    --json prints a profile file, ready to edit.
    """
    if is_profile(name):
        model = load_profile(name, sequence_length=sequence_length)
        if precision not in (None, model.precision):
            raise BadInputError(f"{name}: is a profile in {model.precision}; leave out --precision")
    else:
        model = catalogue_model(
            name, precision=Precision(precision or default_precision(name)), sequence_length=sequence_length
        )
    if as_json:
        print_text(format_json(to_tree(model)))
        return
    tokens = "" if model.sequence_length is None else f", {model.sequence_length} tokens per sample"
    parameters = f"{count_label(model.num_params)} parameters in {model.precision}"
    click.echo(f"{model.name}: {model.num_layers} layers, {parameters}{tokens}")
    if not is_file_name(name):
        click.echo(describe_model(name))
    click.echo()
    print_table(layer_table(model))


def _summary(model: ModelProfile) -> dict[str, object]:
    return {
        "name": model.name,
        "summary": describe_model(model.name),
        "layers": model.num_layers,
        "skip_edges": len(model.skip_edges),
        "params": model.num_params,
        "forward_flops": sum(layer.forward_flops for layer in model.layers),
        "sequence_length": model.sequence_length,
    }
