"""Pictures as files: which formats there are, and figures turned into them."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from stagecut.planner.core.errors import BadInputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 110


class ImageFormat(StrEnum):
    """Formats a picture can be written in."""

    PNG = "png"
    SVG = "svg"


def image_format(path: Path, *, what: str) -> ImageFormat:
    """The format that a file name asks for.

    Parameters
    ----------
    what
        The kind of picture, for example `a Gantt chart`.

    Raises
    ------
    BadInputError
        If it is none of ours, or if matplotlib is not installed.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in set(ImageFormat):
        raise BadInputError(f"{path}: {what} is written as .png or .svg, got suffix {path.suffix!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as fault:
        raise BadInputError(f"{what} needs matplotlib: pip install 'stagecut[plot]'") from fault
    return ImageFormat(suffix)


@contextmanager
def reproducible() -> Iterator[None]:
    """Draw and encode in this context: the same figure gives the same bytes, and names are no formulas."""
    from matplotlib import rc_context

    with (
        rc_context({"svg.hashsalt": "stagecut", "svg.fonttype": "none", "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        yield


def encoded(figure: "Figure", image: ImageFormat) -> bytes:
    """The bytes of the file; to be called where the figure was drawn, inside :func:`reproducible`."""
    metadata = {"Date": None} if image is ImageFormat.SVG else {"Software": None}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=image.value, dpi=DPI, metadata=metadata)
    return buffer.getvalue()
