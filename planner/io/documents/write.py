"""Atomic writing: an output file is complete or not there at all."""

import fcntl
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stagecut.planner.core.messages.errors import BadInputError, OutputError
from stagecut.planner.io.documents.canonical import Tree, format_json
from stagecut.planner.io.documents.input_file import MAX_FILE_BYTES
from stagecut.planner.io.documents.tree import Document, parse_document

_TEMPORARY = re.compile(r"\.stagecut-[0-9a-f]{16}\.tmp")


def check_writable(path: str | Path, *, force: bool = False) -> None:
    """Check early that an output can be written later.

    Raises
    ------
    OutputError
        If the path is a folder or not a regular file, already exists (without `force`), or is in a folder
        that does not exist or is not writable.
    """
    try:
        target = Path(path).resolve()
        _check_target(path, target, force=force)
    except (OSError, ValueError, RuntimeError) as error:
        raise _unwritable(path, error) from None


def write_bytes(path: str | Path, content: bytes, *, force: bool = False) -> None:
    """Write a file atomically: it ends up with all of the content, or stays as it was.

    Raises the errors of :func:`check_writable`, and an OutputError if the system fails to write.
    """
    check_writable(path, force=force)
    target = Path(path).resolve()
    _remove_stale(target.parent)
    try:
        try:
            _write_once(target, content)
        except FileNotFoundError:  # another process took the temporary file for stale before it was locked
            _write_once(target, content)
    except OSError as error:
        raise _unwritable(path, error) from None
    _sync_folder(target.parent)


def _write_once(target: Path, content: bytes) -> None:
    temporary = target.with_name(f".stagecut-{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("xb") as file:
            with suppress(OSError):  # without lock support in the file system, nobody removes it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_stale(folder: Path) -> None:
    """Remove temporary files that killed writers left in a folder.

    A writer holds a lock on its temporary file, and the system releases it when the process ends, however
    and on whichever host: an unlocked file has no writer.
    """
    with suppress(OSError):
        for path in folder.iterdir():
            if _TEMPORARY.fullmatch(path.name):
                _remove_unless_locked(path)


def _remove_unless_locked(path: Path) -> None:
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if stat.S_ISREG(os.fstat(descriptor).st_mode):
                path.unlink()
        finally:
            os.close(descriptor)


def check_place(path: str | Path, target: Path) -> None:
    """Raise an OutputError if an output, which resolves to `target`, is a folder or in a missing one."""
    if target.is_dir():
        raise OutputError(f"{path}: is a folder; give the path of a file")
    if not target.parent.is_dir():
        raise OutputError(f"{path}: the folder {str(target.parent)!r} does not exist; create it first")


def _check_target(path: str | Path, target: Path, *, force: bool) -> None:
    check_place(path, target)
    if target.exists() and not target.is_file():
        raise OutputError(f"{path}: is not a regular file; choose another path")
    if target.exists() and not force:
        raise OutputError(f"{path}: already exists; use --force to overwrite it, or choose another path")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: the folder {str(target.parent)!r} is not writable")


def _sync_folder(folder: Path) -> None:
    """Make the new directory entry survive a power loss, where the file system can."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _unwritable(path: str | Path, error: Exception) -> OutputError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return OutputError(f"{path}: could not be written: {reason}; nothing was written")


def readable_text(tree: Tree, read: Callable[[Document], object], *, path: str | Path) -> str:
    """Format a tree as JSON, and check that `read` accepts the result; messages name the file `path`.

    Raises an OutputError with every reason why `read` would reject it.
    """
    text = format_json(tree)
    if len(text) > MAX_FILE_BYTES:  # JSON is ASCII: one byte per character
        raise OutputError(f"{path}: not written: larger than {MAX_FILE_BYTES / 1e6:.0f} MB, the limit for inputs")
    try:
        read(parse_document(text, file=""))
    except BadInputError as error:
        reasons = (complaint.partition(": ")[2] for complaint in error.complaints)  # drop the line number
        raise OutputError(
            *(f"{path}: not written, because it could not be read back: {reason}" for reason in reasons)
        ) from None
    return text
