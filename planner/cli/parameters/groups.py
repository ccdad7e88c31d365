"""Options declared as fields of a dataclass, which a command gets as one value of that class."""

import functools
import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field, fields
from enum import StrEnum
from typing import Any

import click
from click.core import ParameterSource

from stagecut.planner.cli.process.lazy_group import VERBOSE
from stagecut.planner.cli.process.sections import GENERAL, SectionOption

Command = Callable[..., None]
Decorator = Callable[[Command], Command]
_DECLARATION = "option"
"""Key of a field's metadata: the flags and attributes of its option."""


def option(*flags: str, **attributes: Any) -> Any:
    """Declare a field of a dataclass as an option, with the arguments of :func:`click.option`."""
    if isinstance(attributes.get("type"), click.IntRange):  # shown as N, not as INTEGER RANGE
        attributes.setdefault("metavar", "N")
    return field(metadata={_DECLARATION: (flags, attributes)})


def member_option(*flags: str, members: type[StrEnum], **attributes: Any) -> Any:
    """Declare a field as an option whose value is a member of an enumeration; None where it has no default."""
    names = [str(member) for member in members]

    def member(_ctx: click.Context, _param: click.Parameter, value: str | None) -> StrEnum | None:
        return None if value is None else members(value)

    return option(*flags, type=click.Choice(names), callback=member, **attributes)


def option_group(group: type, *, argument: str, **defaults: object) -> Decorator:
    """Give a command the options of a dataclass as one argument; those of its base class come last in the help.

    `defaults` replace, by field, those that the class declares. The help shows them under the `HEADING` of the class
    that declares them.
    """
    owners = {name: owner for owner in reversed(group.__mro__) for name in inspect.get_annotations(owner)}
    names = list(dict.fromkeys(name for owner in group.__mro__ for name in inspect.get_annotations(owner)))
    declared = {each.name: each.metadata[_DECLARATION] for each in fields(group) if _DECLARATION in each.metadata}
    names = [name for name in names if name in declared]
    options = []
    for name in names:
        flags, attributes = declared[name]
        default = {"default": defaults[name]} if name in defaults else {}
        shown = {"show_default": "default" in attributes, "section": getattr(owners[name], "HEADING", GENERAL)}
        options.append(click.option(*flags, name, cls=SectionOption, **{**shown, **attributes, **default}))

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def collected(**values: Any) -> None:
            command(**{argument: group(**{name: values.pop(name) for name in names})}, **values)

        return _with_options(collected, options)

    return decorate


def flags_given(names: Iterable[str]) -> str:
    """Those of the running command's options that the command line states, as a message quotes them."""
    context, wanted = click.get_current_context(), set(names)
    options = (each for each in context.command.params if each.name in wanted)
    given = (each for each in options if context.get_parameter_source(each.name or "") is ParameterSource.COMMANDLINE)
    return ", ".join(f"'{each.opts[0]}'" for each in given)


quiet_option = click.option("--quiet", is_flag=True, help="Print nothing but errors to stderr.")


def general_options(command: Command) -> Command:
    """Give a command --json, as its argument `as_json`, and -v, which only error messages ask for."""
    options = (
        click.option(
            "--json", "as_json", is_flag=True, callback=_here_or_above, help="Print the answer as one JSON object."
        ),
        click.option(
            "-v",
            "--verbose",
            is_flag=True,
            expose_value=False,
            is_eager=True,
            callback=_remember,
            help="Print more details, and the traceback of an internal fault.",
        ),
    )
    return _with_options(command, options)


def is_verbose() -> bool:
    """Whether the running command was given -v."""
    return bool(click.get_current_context().meta.get(VERBOSE, False))


def example(*lines: str) -> str:
    r"""The epilog of a command: its examples, one per line, which `\b` keeps click from wrapping."""
    return "\n  ".join(("\b\nExample:", *lines))


def _here_or_above(ctx: click.Context, _param: click.Parameter, value: bool) -> bool:
    """`plan models --json show NAME` means the same as `plan models show NAME --json`."""
    return value or bool(ctx.parent and ctx.parent.params.get("as_json"))


def _remember(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    ctx.meta[VERBOSE] = value or ctx.meta.get(VERBOSE, False)


def _with_options(command: Command, options: Sequence[Decorator]) -> Command:
    """Add the options in the order of the help."""
    for each in reversed(options):
        command = each(command)
    return command
