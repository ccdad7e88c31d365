"""Pictures as PNG or SVG files."""

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.units import MS, US

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

DPI = 110


class ImageFormat(StrEnum):
    """File formats of pictures."""

    PNG = "png"
    SVG = "svg"


def image_format(path: Path, *, what: str) -> ImageFormat:
    """The format that the file name of a picture, for example of `a Gantt chart`, asks for.

    Raises a BadInputError if it is not one of these formats, or if matplotlib is not installed.
    """
    suffix = path.suffix.lower().removeprefix(".")
    if suffix not in set(ImageFormat):
        raise BadInputError(f"{path}: {what} must be a .png or .svg file, got suffix {path.suffix!r}")
    try:
        import matplotlib  # noqa: F401
    except ImportError as fault:
        raise BadInputError(f"{what} needs matplotlib: pip install 'stagecut[plot]'") from fault
    return ImageFormat(suffix)


@contextmanager
def reproducible() -> Iterator[None]:
    """Draw and encode in this context: the same figure gives the same bytes, and names are not read as formulas."""
    from matplotlib import rc_context

    with (
        rc_context({"svg.hashsalt": "stagecut", "svg.fonttype": "none", "text.parse_math": False}),
        warnings.catch_warnings(),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")  # drawn as a box
        yield


def encoded(figure: "Figure", image: ImageFormat) -> bytes:
    """The bytes of the file; call it where the figure was drawn, inside :func:`reproducible`."""
    metadata = {"Date": None} if image is ImageFormat.SVG else {"Software": None}
    buffer = io.BytesIO()
    figure.savefig(buffer, format=image.value, dpi=DPI, metadata=metadata)
    return buffer.getvalue()


def label_times(axis: "Axis", largest_s: float, *, name: str, digits: int) -> None:
    """Label an axis whose values are seconds in s, ms or us, whichever suits the largest value."""
    size, unit = next((pair for pair in ((1.0, "s"), (MS, "ms")) if largest_s >= pair[0]), (US, "us"))
    axis.set_label_text(f"{name} ({unit})")
    axis.set_major_formatter(lambda seconds, _: f"{seconds / size:.{digits}g}")
