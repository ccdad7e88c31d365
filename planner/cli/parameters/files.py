"""Types of options that name files: a file to write must not be any other file of the command line."""

import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import click
from click.types import StringParamType

from stagecut.planner.cli.parameters.catalogue import is_file_name
from stagecut.planner.cli.parameters.groups import option
from stagecut.planner.core.messages.errors import OutputError

GIVEN = "stagecut.planner.cli.files"
"""Key of the context under which the files of a command line are kept."""
_STREAMS = {1: "stdout", 2: "stderr"}


class InputFile(click.Path):
    """A file to read."""

    is_output = False

    def __init__(self, path_type: type[Path] | type[str] = Path) -> None:
        super().__init__(path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path, after comparing it with the other files of the command line."""
        _note((Path(value),), ctx, is_output=self.is_output)
        return super().convert(value, param, ctx)


class OutputFile(InputFile):
    """A file to write."""

    is_output = True


class NameOrFile(StringParamType):
    """A catalogue name or a file to read; see :func:`stagecut.planner.cli.parameters.catalogue.is_file_name`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, after comparing the file it may name with the outputs."""
        _note((Path(value),) if is_file_name(value) else (), ctx)
        return value


class ModuleFunction(StringParamType):
    """A function as `package.module:function`, whose module may be a file of the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the text, after comparing the file of the module with the outputs."""
        module = Path(*value.partition(":")[0].split("."))
        _note((module.with_suffix(".py"), module / "__init__.py"), ctx)
        return value


def output_option(*flags: str, text: str, **attributes: Any) -> Any:
    """Declare a field of a dataclass as an option that names a file to write."""
    return option(*flags, type=OutputFile(), metavar="FILE", help=text, **attributes)


def _note(paths: Iterable[Path], ctx: click.Context | None, *, is_output: bool = False) -> None:
    """Remember paths for comparison with those that follow.

    Raises an OutputError if an output is another file of the command line too, or receives stdout or stderr.
    """
    if ctx is None or ctx.resilient_parsing:
        return
    before: list[tuple[Path, bool]] = ctx.meta.setdefault(GIVEN, [])
    for path in paths:
        for other, other_is_output in before:
            if (is_output or other_is_output) and _is_same(path, other):
                raise _clash(*((path, other) if is_output else (other, path)), both=is_output and other_is_output)
        for name in _streams_into(path) if is_output else ():
            raise OutputError(f"{path}: {name} is redirected to this file; name another file")
        before.append((path, is_output))


def _clash(output: Path, other: Path, *, both: bool) -> OutputError:
    if both:
        return OutputError(f"{output}: is named for two outputs; name another file")
    alias = "" if output == other else f", as {other}"
    return OutputError(f"{output}: is also an input{alias}, so it is not overwritten; name another file")


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, through links of any kind, or would if it existed."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, ValueError, RuntimeError):  # at least one of them does not exist, or cannot
        return False


def _streams_into(path: Path) -> Iterator[str]:
    """Names of the standard streams that are redirected into this file."""
    for descriptor, name in _STREAMS.items():
        try:
            stream = os.fstat(descriptor)
            if stat.S_ISREG(stream.st_mode) and os.path.samestat(stream, path.stat()):
                yield name
        except (OSError, ValueError):
            continue
