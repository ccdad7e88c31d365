"""Help in which the options stand under headings."""

from typing import Any

import click

GENERAL = "Options"
"""Heading of options that declare none; they come last."""


class SectionOption(click.Option):
    """An option that knows the heading under which the help shows it."""

    def __init__(self, *arguments: Any, section: str = GENERAL, **attributes: Any) -> None:
        super().__init__(*arguments, **attributes)
        self.section = section


class SectionCommand(click.Command):
    """A command whose help shows its options by section, in the order in which sections first occur."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of options for every section."""
        for heading, records in sections(self, ctx).items():
            with formatter.section(heading):
                formatter.write_dl(records)


def sections(command: click.Command, ctx: click.Context) -> dict[str, list[tuple[str, str]]]:
    """Flags and help of the options of a command by heading, general ones last."""
    found: dict[str, list[tuple[str, str]]] = {}
    for each in command.get_params(ctx):
        if isinstance(each, click.Option) and (record := each.get_help_record(ctx)):
            found.setdefault(getattr(each, "section", GENERAL), []).append(record)
    general = found.pop(GENERAL, [])
    return {**found, GENERAL: general}
