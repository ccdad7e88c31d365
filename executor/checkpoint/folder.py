"""A folder of checkpoints, each a folder that is either complete or absent."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "checkpoint.json"
_NAME = re.compile(r"step-(\d{6,})")
_HIDDEN = ".step-"
"""Prefix of incomplete checkpoints: being written, or being removed."""


def place_of(folder: Path, num_steps: int) -> Path:
    """Path of the checkpoint after so many training steps."""
    return folder / f"step-{num_steps:06d}"


def partial_place_of(folder: Path, num_steps: int) -> Path:
    """Its path while it is being written."""
    return folder / f"{_HIDDEN}{num_steps:06d}.partial"


def steps_of(place: Path) -> int | None:
    """Training steps of a checkpoint; None if the name is not that of a checkpoint."""
    found = _NAME.fullmatch(place.name)
    return int(found[1]) if found else None


def latest(folder: str | Path) -> Path | None:
    """The checkpoint with the most training steps; None if there is none."""
    return max(_checkpoints(Path(folder)), default=(-1, None))[1]


def prepare(folder: Path) -> None:
    """Create the folder, and remove what an interrupted save or removal has left in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in sorted(folder.glob(f"{_HIDDEN}*")):
        shutil.rmtree(leftover)


def discard(partial: Path) -> None:
    """Remove an unfinished checkpoint: the space may be needed."""
    shutil.rmtree(partial, ignore_errors=True)


def publish(partial: Path, place: Path) -> None:
    """Give a complete checkpoint its name, replacing one of the same name."""
    _flush(partial)
    if place.exists():
        remove(place)
    partial.rename(place)
    _flush(place.parent)


def prune(folder: Path, *, keep: int, up_to: int) -> None:
    """Keep only the newest of the checkpoints after at most `up_to` training steps.

    Later ones belong to a run that was rolled back, and stay.
    """
    old = sorted((steps, place) for steps, place in _checkpoints(folder) if steps <= up_to)
    for _, place in old[:-keep]:
        remove(place)


def remove(place: Path) -> None:
    """Remove a checkpoint; it loses its name before its first file is deleted."""
    hidden = place.with_name(f"{_HIDDEN}{place.name}.{secrets.token_hex(4)}.removed")
    place.rename(hidden)
    shutil.rmtree(hidden)


def write_file(path: Path, content: bytes) -> None:
    """Write a file and sync it to disk."""
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _checkpoints(folder: Path) -> Iterator[tuple[int, Path]]:
    for place in folder.glob("step-*"):
        steps = steps_of(place)
        if steps is not None and (place / MANIFEST).is_file():
            yield steps, place


def _flush(folder: Path) -> None:
    """Sync a folder, whose data are the names of its files."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
