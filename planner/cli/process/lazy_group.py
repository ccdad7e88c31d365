"""A group of commands that imports a command only when it is used."""

import importlib
import sys
import time
import warnings
from collections.abc import Mapping
from typing import Any

import click
from click.shell_completion import CompletionItem

from stagecut.planner.cli.process.faults import exit_code_of
from stagecut.planner.core.messages.errors import FaultWarning, StagecutError
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.report.visible_stream import visible_streams


class LazyGroup(click.Group):
    """Commands by name; whatever they raise becomes a message and an exit code here."""

    def __init__(self, *, package: str, summaries: Mapping[str, str], **attributes: Any) -> None:
        super().__init__(**attributes)
        self._package = package
        self._summaries = summaries

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order of the help."""
        return list(self._summaries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None if there is no such command."""
        if cmd_name not in self._summaries:
            return None
        command = importlib.import_module(f"{self._package}.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete the name of a command without importing the commands, or an option."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in self._summaries if name.startswith(incomplete))
        return [CompletionItem(name, help=self._summaries[name]) for name in names]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find a command; suggest the closest name if there is none."""
        if args[0] not in self._summaries and (hint := nearest(args[0], self._summaries)):
            ctx.fail(f"No such command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List names and summaries without importing the commands."""
        with formatter.section("Commands"):
            formatter.write_dl([*self._summaries.items()])

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """See :meth:`click.Command.main`; nothing printed is hidden, and a failure to print the help is reported."""
        with visible_streams():
            try:
                return super().main(*args, **kwargs)
            except StagecutError as fault:
                sys.exit(exit_code_of(fault, verbose=False))

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command; see :mod:`stagecut.planner.cli.process.faults`."""
        ctx.meta[STARTED_S] = time.perf_counter()
        # commands report it in their own words; python's -W takes precedence
        warnings.simplefilter("ignore", FaultWarning, append=True)
        try:
            return super().invoke(ctx)
        except (Exception, KeyboardInterrupt) as fault:
            ctx.exit(exit_code_of(fault, verbose=ctx.meta.get(VERBOSE, False)))


VERBOSE = "stagecut.planner.cli.verbose"
"""Key of the context under which the option -v is kept."""
STARTED_S = "stagecut.planner.cli.started_s"
"""Key of the context under which the time is kept when the command began."""


def seconds_since_start(context: click.Context) -> float:
    """Seconds for which the command has been running."""
    started_s = context.meta[STARTED_S]
    assert isinstance(started_s, float)
    return time.perf_counter() - started_s
