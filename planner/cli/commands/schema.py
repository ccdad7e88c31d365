"""`plan schema`: print the JSON Schema of a kind of file."""

import click

from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.process.writing import print_text
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.files.schema import KINDS, json_schema


@click.command("schema", epilog=example("plan schema cluster"))
@click.argument("kind", type=click.Choice(KINDS))
@general_options
def command(kind: str, *, as_json: bool) -> None:
    """Print the JSON Schema of a kind of file: every key with its unit, range and default.

    The answer is JSON with or without --json.
    """
    del as_json
    print_text(format_json(json_schema(kind)))
