"""Answers on stdout and files, written whole whatever signals come meanwhile."""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import click

from stagecut.planner.cli.process.cancellable import held
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.io.documents.write import write_bytes


def write_file(path: Path, content: str | bytes, *, force: bool) -> None:
    """Write a file in one step; see :func:`stagecut.planner.io.documents.write.write_bytes`."""
    with held():
        write_bytes(path, content.encode() if isinstance(content, str) else content, force=force)


def announce(paths: Sequence[Path]) -> None:
    """Say on stderr what was written."""
    for path in paths:
        click.echo(f"wrote {visible(path)}", err=True)


def print_json(tree: Mapping[str, object]) -> None:
    """Print one JSON object; unknown and unlimited numbers become null, for which JSON has no other word."""
    print_text(json.dumps(_finite(tree), indent=2, sort_keys=True, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Print an answer that would be useless in parts."""
    with held():
        click.echo(text, nl=False)


def compact_json(tree: Mapping[str, object]) -> str:
    """JSON text for programs, on one line."""
    return json.dumps(tree, separators=(",", ":"), allow_nan=False) + "\n"


def _finite(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
