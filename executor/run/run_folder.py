"""Temporary folders of runs: for this user alone, and gone when the process that made them is."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PREFIX = "stagecut-run-"
LOCK = "lock"
"""A file in each of them, locked for as long as its process lives: the system lets go of it, whatever ends that."""
_UNFINISHED_S = 3600.0
"""A folder without that file is being made, or was left by somebody who died in the middle of it."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new folder that nobody else may look into, removed afterwards; those of dead processes are removed first."""
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove this user's folders of processes that have ended without doing so."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with suppress(OSError):  # somebody else removes it at this moment
            if _is_own(folder) and _is_abandoned(folder):
                shutil.rmtree(folder)


def _lock(folder: Path) -> int:
    """The file gets its name when it is locked already."""
    hidden = folder / f".{LOCK}"
    number = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(number, fcntl.LOCK_EX)
    hidden.rename(folder / LOCK)
    return number


def _is_own(folder: Path) -> bool:
    """By name alone anybody could make us remove something."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid()


def _is_abandoned(folder: Path) -> bool:
    try:
        number = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return time.time() - folder.lstat().st_mtime > _UNFINISHED_S
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(number)
    return True
