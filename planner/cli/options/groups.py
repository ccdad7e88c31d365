"""Options that belong together, handed to a command as one value."""

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any

import click

from stagecut.planner.cli.process.lazy_group import VERBOSE

Command = Callable[..., None]


def option_group(
    command: Command, options: Sequence[Callable[[Command], Command]], *, argument: str, build: Callable[..., object]
) -> Command:
    """Give a command these options as one argument, built from them by their names."""
    names = tuple(inspect.signature(build).parameters)

    @functools.wraps(command)
    def collected(**values: Any) -> None:
        command(**{argument: build(**{name: values.pop(name) for name in names})}, **values)

    return _with_options(collected, options)


def general_options(command: Command) -> Command:
    """Give a command --json, as its argument `as_json`, and -v, which only error messages ask for."""
    options = (
        click.option("--json", "as_json", is_flag=True, callback=_here_or_above, help="Print one JSON object."),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Say more; show where an internal fault happened.",
        ),
    )
    return _with_options(command, options)


def is_verbose() -> bool:
    """Whether the running command was given -v."""
    return bool(click.get_current_context().meta.get(VERBOSE, False))


def _here_or_above(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """`plan models --json show NAME` means the same as `plan models show NAME --json`."""
    return value or bool(ctx.parent and ctx.parent.params.get("as_json"))


def _remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[VERBOSE] = value or ctx.meta.get(VERBOSE, False)


def _with_options(command: Command, options: Sequence[Callable[[Command], Command]]) -> Command:
    """In the order of the help."""
    for option in reversed(options):
        command = option(command)
    return command
