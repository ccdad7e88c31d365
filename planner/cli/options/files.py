"""Types of options that name files: a file that a command writes may be no other file that it was given."""

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.types import StringParamType

from stagecut.planner.cli.options.inputs import is_file_name
from stagecut.planner.core.errors import OutputError

GIVEN = "stagecut.planner.cli.options.files"
"""Key of the context under which the files of a command line are kept."""
_STREAMS = {1: "stdout", 2: "stderr"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    path: Path
    is_output: bool


class InputFile(click.Path):
    """A file to read."""

    def __init__(self, path_type: type[Path] | type[str] = Path) -> None:
        super().__init__(path_type=path_type)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, after a look at the outputs."""
        _note(Path(value), ctx, is_output=False)
        return super().convert(value, param, ctx)


class OutputFile(click.Path):
    """A file to write."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path, after a look at all other files."""
        _note(Path(value), ctx, is_output=True)
        return super().convert(value, param, ctx)


class NameOrFile(StringParamType):
    """A name of the catalogue, or a file to read; see :func:`planner.cli.options.inputs.is_file_name`."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The same text, after a look at the outputs."""
        if is_file_name(value):
            _note(Path(value), ctx, is_output=False)
        return value


class ModuleFunction(StringParamType):
    """A function as `package.module:function`, whose module may be a file of the current folder."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The same text, after a look at the outputs."""
        module = Path(*value.partition(":")[0].split("."))
        for path in (module.with_suffix(".py"), module / "__init__.py"):
            _note(path, ctx, is_output=False)
        return value


def _note(path: Path, ctx: click.Context | None, *, is_output: bool) -> None:
    """Keep a path for comparison with those that follow.

    Raises
    ------
    OutputError
        If it is an output and another file of the command line too, or the other way round.
    """
    if ctx is None or ctx.resilient_parsing:
        return
    given = _Given(path=path, is_output=is_output)
    before: list[_Given] = ctx.meta.setdefault(GIVEN, [])
    for other in before:
        if _is_same(path, other.path):
            _refuse(given, other)
    if is_output:
        for name in _streams_into(path):
            raise OutputError(f"{path}: is where {name} goes; name another file")
    before.append(given)


def _refuse(one: _Given, other: _Given) -> None:
    """Complain of an output; two inputs may be the same."""
    output, again = (one, other) if one.is_output else (other, one)
    if again.is_output:
        raise OutputError(f"{output.path}: is named for two outputs; name another file")
    if output.is_output:
        alias = "" if output.path == again.path else f", as {again.path}"
        raise OutputError(f"{output.path}: is also to be read{alias}, and stays as it is; name another file")


def _is_same(one: Path, other: Path) -> bool:
    """Whether two paths lead to the same file, by links of any kind, or would if there were one."""
    try:
        return one.resolve() == other.resolve() or one.samefile(other)
    except (OSError, ValueError, RuntimeError):  # at least one of them does not exist, or cannot
        return False


def _streams_into(path: Path) -> Iterator[str]:
    """Names of the standard streams that were redirected into this file."""
    for descriptor, name in _STREAMS.items():
        try:
            stream = os.fstat(descriptor)
            if stat.S_ISREG(stream.st_mode) and os.path.samestat(stream, path.stat()):
                yield name
        except (OSError, ValueError):
            continue
