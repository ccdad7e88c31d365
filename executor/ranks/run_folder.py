"""Temporary folders of runs: private to the user, and removed once the process that made them has ended."""

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
"""A file in each folder, locked while its process lives: the system releases it, whatever ends the process."""
_UNFINISHED_S = 3600.0
"""A folder without a lock file is still being made, or its process died while making it."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A new private folder, removed afterwards; folders left by dead processes are removed first."""
    remove_abandoned()
    folder = Path(tempfile.mkdtemp(prefix=PREFIX))
    lock = _lock(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def remove_abandoned() -> None:
    """Remove folders that this user's dead processes left behind."""
    for folder in sorted(Path(tempfile.gettempdir()).glob(f"{PREFIX}*")):
        with suppress(OSError):  # another process is removing it right now
            if _is_own(folder) and _is_abandoned(folder):
                shutil.rmtree(folder)


def _lock(folder: Path) -> int:
    """The file gets its name once it is locked."""
    hidden = folder / f".{LOCK}"
    number = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    fcntl.flock(number, fcntl.LOCK_EX)
    hidden.rename(folder / LOCK)
    return number


def _is_own(folder: Path) -> bool:
    """A check of the name alone would let anybody make us remove something."""
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
