"""The reference of commands, from click."""

import inspect
import re
from collections.abc import Iterator

import click

from stagecut.planner.cli.main import main
from stagecut.planner.cli.process.sections import sections

LONG = 40
"""Characters that fit into the first column."""


def command_reference() -> str:
    """A section for every command with its help, its options and its example."""
    top = click.Context(main, info_name="plan")
    return "".join(_section(command, context, level=2) for command, context in _commands(top))


def _commands(parent: click.Context) -> Iterator[tuple[click.Command, click.Context]]:
    """The commands of a group in the order of its help, each followed by its own."""
    group = parent.command
    assert isinstance(group, click.Group)
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=parent)
        yield command, context
        if isinstance(command, click.Group):
            yield from _commands(context)


def _section(command: click.Command, context: click.Context, *, level: int) -> str:
    usage = " ".join((context.command_path, *command.collect_usage_pieces(context)))
    parts = [f"{'#' * level} {context.command_path}", _fenced(usage), _prose(inspect.cleandoc(command.help or ""))]
    parts += [_options(heading, records) for heading, records in sections(command, context).items()]
    if command.epilog:
        parts.append(_fenced(re.sub(r"^\W*Example:\s*", "", command.epilog).replace("\n  ", "\n")))
    return "\n\n" + "\n\n".join(parts) + "\n"


def _options(heading: str, records: list[tuple[str, str]]) -> str:
    """The options of a section with what click says about each."""
    rows = (f"| {_code(flags)} | {_prose(text)} |" for flags, text in records)
    return "\n".join((f"| {heading} | |", "|---|---|", *rows))


def _fenced(text: str) -> str:
    return f"```\n{text.strip()}\n```"


def _code(text: str) -> str:
    """Flags and values in code type; long lists of values get places to break the line."""
    bar = "|" if len(text) < LONG else " | "
    return f"`{text.replace('|', bar)}`".replace("|", r"\|")


def _prose(text: str) -> str:
    """Help as Markdown takes it literally."""
    return re.sub(r"([<*\[\]|])", r"\\\1", text.replace("\b\n", ""))
