"""The text of an input file."""

from pathlib import Path

from planner.core.errors import BadInputError

MAX_FILE_BYTES = 16_000_000
"""Larger inputs are refused unread."""


def read_text(path: str | Path) -> str:
    """Text of a UTF-8 file; a byte order mark is passed over.

    Raises
    ------
    BadInputError
        If the file is missing, a folder, unreadable, too large, not UTF-8, or holds NUL characters.
    """
    content = _read_bytes(Path(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{path}:{line}: not UTF-8 text ({error.reason}); save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInputError(f"{path}:{line}: holds a NUL character; JSON or YAML text is wanted")
    return text


def _read_bytes(path: Path) -> bytes:
    try:
        if path.is_dir():
            raise BadInputError(f"{path}: is a folder; a JSON or YAML file is wanted")
        if path.stat().st_size > MAX_FILE_BYTES:
            raise _too_large(path)
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise BadInputError(f"{path}: no such file") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise BadInputError(f"{path}: cannot be read: {reason}") from None
    if len(content) > MAX_FILE_BYTES:
        raise _too_large(path)
    return content


def _too_large(path: Path) -> BadInputError:
    return BadInputError(f"{path}: larger than {MAX_FILE_BYTES / 1e6:.0f} MB, the most an input may have")
