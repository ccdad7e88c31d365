"""Texts of files to be written, after a look whether they could be read again."""

from collections.abc import Callable
from pathlib import Path

from stagecut.planner.core.errors import BadInputError, OutputError
from stagecut.planner.io.documents.canonical import Tree, format_json
from stagecut.planner.io.documents.text import MAX_FILE_BYTES
from stagecut.planner.io.documents.tree import Document, parse_document


def readable_text(tree: Tree, read: Callable[[Document], object], *, path: str | Path) -> str:
    """The text of a file, which `read` accepts.

    Parameters
    ----------
    path
        Where it is to be written.

    Raises
    ------
    OutputError
        With every reason why `read` would refuse it.
    """
    text = format_json(tree)
    if len(text) > MAX_FILE_BYTES:  # one byte for each character: the others are escaped
        size = f"it would be larger than {MAX_FILE_BYTES / 1e6:.0f} MB, the most an input may have"
        raise OutputError(f"{path}: not written, for {size}")
    try:
        read(parse_document(text, file=""))
    except BadInputError as error:
        reasons = (complaint.partition(": ")[2] for complaint in error.complaints)  # behind the line
        raise OutputError(*(f"{path}: not written, for it could not be read: {reason}" for reason in reasons)) from None
    return text
