"""A folder of checkpoints: one folder for each, which is there as a whole or not at all."""

import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

MANIFEST = "checkpoint.json"
_NAME = re.compile(r"step-(\d{6,})")
_HIDDEN = ".step-"
"""Begins the names of what is not whole: being written, or being removed."""


def place_of(folder: Path, num_steps: int) -> Path:
    """Where the checkpoint after so many training steps is."""
    return folder / f"step-{num_steps:06d}"


def partial_place_of(folder: Path, num_steps: int) -> Path:
    """Where it is while it is written."""
    return folder / f"{_HIDDEN}{num_steps:06d}.partial"


def steps_of(place: Path) -> int | None:
    """After how many training steps a checkpoint was written; None if the name is not one of a checkpoint."""
    found = _NAME.fullmatch(place.name)
    return int(found[1]) if found else None


def latest(folder: str | Path) -> Path | None:
    """The checkpoint with the most training steps; None if there is none."""
    return max(_checkpoints(Path(folder)), default=(-1, None))[1]


def prepare(folder: Path) -> None:
    """Make the folder, and remove what a save or removal that was cut short has left in it."""
    folder.mkdir(parents=True, exist_ok=True)
    for leftover in sorted(folder.glob(f"{_HIDDEN}*")):
        shutil.rmtree(leftover)


def discard(partial: Path) -> None:
    """Remove what could not be finished: the room may be needed."""
    shutil.rmtree(partial, ignore_errors=True)


def publish(partial: Path, place: Path) -> None:
    """Give a checkpoint that is whole its name, in place of one of the same name."""
    _flush(partial)
    if place.exists():
        remove(place)
    partial.rename(place)
    _flush(place.parent)


def prune(folder: Path, *, keep: int, up_to: int) -> None:
    """Leave the newest few of the checkpoints after at most so many training steps.

    Those after more steps are of a run that was taken back, and stay.
    """
    old = sorted((steps, place) for steps, place in _checkpoints(folder) if steps <= up_to)
    for _, place in old[:-keep]:
        remove(place)


def remove(place: Path) -> None:
    """Remove a checkpoint; it has lost its name before the first file of it goes."""
    hidden = place.with_name(f"{_HIDDEN}{place.name}.{secrets.token_hex(4)}.removed")
    place.rename(hidden)
    shutil.rmtree(hidden)


def write_file(path: Path, content: bytes) -> None:
    """Write a file through to the disk."""
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
    """Names of files are data of their folder."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
