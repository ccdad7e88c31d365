"""A command that knows its own arguments, to start itself again elsewhere."""

import click

ARGUMENTS = "stagecut.planner.cli.arguments"
"""Key of the context under which they are kept."""


class RepeatableCommand(click.Command):
    """Keeps its arguments as they were given."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """See :meth:`click.Command.parse_args`."""
        ctx.meta[ARGUMENTS] = tuple(args)
        return super().parse_args(ctx, args)


def own_arguments() -> tuple[str, ...]:
    """Arguments of the running command."""
    return tuple(click.get_current_context().meta[ARGUMENTS])
