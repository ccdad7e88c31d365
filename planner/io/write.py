"""Output files, whole or not at all."""

import os
import secrets
from pathlib import Path

from planner.core.errors import OutputError


def check_writable(path: str | Path, *, force: bool = False) -> None:
    """Complain now of an output that could not be written later.

    Raises
    ------
    OutputError
        If the path is a folder or no regular file, exists already (without `force`), or lies in a
        folder that does not exist or cannot be written to.
    """
    try:
        target = Path(path).resolve()
        _check_target(path, target, force=force)
    except (OSError, ValueError, RuntimeError) as error:
        raise _cannot(path, error) from None


def write_text(path: str | Path, text: str, *, force: bool = False) -> None:
    """Write UTF-8 text; see :func:`write_bytes`."""
    write_bytes(path, text.encode(), force=force)


def write_bytes(path: str | Path, content: bytes, *, force: bool = False) -> None:
    """Write a file in one step: it holds all of the content, or stays as it was.

    Raises
    ------
    OutputError
        See :func:`check_writable`; also if the disk refuses. Nothing is left behind.
    """
    check_writable(path, force=force)
    target = Path(path).resolve()
    temporary = target.with_name(f".stagecut-{secrets.token_hex(8)}.tmp")
    try:
        _write_through(temporary, content)
        temporary.replace(target)
    except OSError as error:
        raise _cannot(path, error) from None
    finally:
        temporary.unlink(missing_ok=True)


def _check_target(path: str | Path, target: Path, *, force: bool) -> None:
    if target.is_dir():
        raise OutputError(f"{path}: is a folder; name a file in it")
    if target.exists() and not target.is_file():
        raise OutputError(f"{path}: is not a regular file; name another")
    if target.exists() and not force:
        raise OutputError(f"{path}: exists already; use --force to overwrite it, or name another file")
    if not target.parent.is_dir():
        raise OutputError(f"{path}: there is no folder {str(target.parent)!r}; create it first")
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise OutputError(f"{path}: the folder {str(target.parent)!r} cannot be written to")


def _write_through(temporary: Path, content: bytes) -> None:
    with temporary.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _cannot(path: str | Path, error: Exception) -> OutputError:
    reason = error.strerror if isinstance(error, OSError) else str(error)
    return OutputError(f"{path}: cannot be written: {reason}; nothing was written")
