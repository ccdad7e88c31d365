"""A group of commands that imports a command only when it is used."""

import difflib
import importlib
import sys
import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import click

from planner.cli.faults import exit_code_of
from planner.core.errors import FaultWarning, StagecutError
from planner.report.visible_stream import visible_streams


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyCommand:
    """Where a command is: the module holds it under the name `command`."""

    module: str
    summary: str
    """First sentence of its help, known without the import."""


class LazyGroup(click.Group):
    """Commands by name; whatever one of them raises becomes a message and an exit code here."""

    def __init__(self, *, commands_by_name: Mapping[str, LazyCommand], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._lazy = commands_by_name

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        command = importlib.import_module(self._lazy[cmd_name].module).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the nearest name where there is none."""
        near = difflib.get_close_matches(args[0], self._lazy, n=1)
        if args[0] not in self._lazy and near:
            ctx.fail(f"No such command {args[0]!r}, did you mean {near[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and summaries, importing nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.summary) for name, lazy in self._lazy.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`click.Command.main`; whatever is printed hides nothing, and a help is always written."""
        with visible_streams():
            try:
                return super().main(*args, **kwargs)
            except StagecutError as fault:
                sys.exit(exit_code_of(fault, verbose=False))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see :mod:`planner.cli.faults`."""
        ctx.meta[STARTED_S] = time.perf_counter()
        # The commands tell it in their own words; python's -W goes before this.
        warnings.simplefilter("ignore", FaultWarning, append=True)
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as fault:
            ctx.exit(exit_code_of(fault, verbose=ctx.meta.get(VERBOSE, False)))


VERBOSE = "planner.cli.verbose"
"""Key of the context under which the option -v is kept."""
STARTED_S = "planner.cli.started_s"
"""Key of the context under which the clock is kept as it stood when the command began."""


def seconds_since_start(context: click.Context) -> float:
    """How long the command has been running."""
    started_s = context.meta[STARTED_S]
    assert isinstance(started_s, float)
    return time.perf_counter() - started_s
