"""The text of an input file."""

import os
from pathlib import Path

from stagecut.planner.core.errors import BadInputError
from stagecut.planner.io.documents.input_file import open_input, unreadable

MAX_FILE_BYTES = 16_000_000
"""Larger inputs are rejected unread."""


def read_text(path: str | Path) -> str:
    """Read a UTF-8 file; a byte order mark is skipped.

    Raises
    ------
    BadInputError
        If the file is missing, a folder, unreadable, a pipe that nobody writes to, too large, not UTF-8, or
        contains NUL characters.
    """
    content = _read_bytes(Path(path))
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise BadInputError(f"{path}:{line}: not UTF-8 text ({error.reason}); save the file as UTF-8") from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadInputError(f"{path}:{line}: contains a NUL character; expected JSON or YAML text")
    return text


def _read_bytes(path: Path) -> bytes:
    with open_input(path) as file:
        try:
            too_large = os.fstat(file.fileno()).st_size > MAX_FILE_BYTES
            content = b"" if too_large else file.read(MAX_FILE_BYTES + 1)
        except OSError as error:
            raise unreadable(path, error) from None
    if too_large or len(content) > MAX_FILE_BYTES:
        raise BadInputError(f"{path}: larger than {MAX_FILE_BYTES / 1e6:.0f} MB, the limit for inputs")
    return content
