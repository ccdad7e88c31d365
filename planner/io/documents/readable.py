"""Text to write, checked to be readable again."""

from collections.abc import Callable
from pathlib import Path

from stagecut.planner.core.errors import BadInputError, OutputError
from stagecut.planner.io.documents.canonical import Tree, format_json
from stagecut.planner.io.documents.input_file import MAX_FILE_BYTES
from stagecut.planner.io.documents.tree import Document, parse_document


def readable_text(tree: Tree, read: Callable[[Document], object], *, path: str | Path) -> str:
    """Format a tree as JSON, and check that `read` accepts the result; messages name the file `path`.

    Raises
    ------
    OutputError
        With every reason why `read` would reject it.
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
