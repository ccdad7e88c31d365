"""Measured tables as Markdown between markers in a page, and pictures beside the pages."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from stagecut.planner.io.documents.write import write_bytes
from stagecut.planner.report.images import ImageFormat, encoded

if TYPE_CHECKING:
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
README, SOLVER_PAGE, EXECUTOR_PAGE = (
    ROOT / "README.md",
    ROOT / "docs" / "solver.md",
    ROOT / "docs" / "executor.md",
)
BENCHMARKS_PAGE = ROOT / "docs" / "benchmarks.md"
IMAGES = ROOT / "docs" / "images"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]], *, numbers: bool = True) -> str:
    """A table whose first column is text; the others may hold numbers or text."""
    rule = ["---", *["--:" if numbers else "---"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)).replace("| --- |", "|---|", 1)


def with_table(text: str, name: str, table: str) -> str:
    """The page with the table between the markers of this name.

    Raises
    ------
    ValueError
        If the page does not have each of the two markers once.
    """
    before, _, after = _around(text, name)
    begin, end = _markers(name)
    return f"{before}{begin}\n{table}\n{end}{after}"


def table_in(text: str, name: str) -> str:
    """The text between the markers of this name.

    Raises
    ------
    ValueError
        If the page does not have each of the two markers once.
    """
    return _around(text, name)[1].strip("\n")


def put_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Replace tables in a page."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = with_table(text, name, table)
    page.write_text(text, encoding="utf-8")


def save_picture(path: Path, figure: "Figure") -> None:
    """Write a figure as SVG; call inside `reproducible`, where it was drawn."""
    path.parent.mkdir(parents=True, exist_ok=True)
    for axes in figure.axes:
        _label_plainly(axes.xaxis)
        _label_plainly(axes.yaxis)
    write_bytes(path, encoded(figure, ImageFormat.SVG), force=True)


def _label_plainly(axis: "Axis") -> None:
    """Write the powers of a logarithmic axis as numbers: formulas are not typeset inside `reproducible`."""
    from matplotlib.ticker import LogFormatter

    if isinstance(axis.get_major_formatter(), LogFormatter):
        axis.set_major_formatter(lambda value, _: f"{value:,.10g}")
        axis.set_minor_formatter(lambda _, __: "")


def percent(share: float | None) -> str:
    """Two digits after the point; a dash for None."""
    return "-" if share is None else f"{100 * share:.2f} %"


def whole_seconds(seconds: float | None) -> str:
    """Seconds, with one digit after the point below ten, and milliseconds below a tenth; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < 0.1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def times(ratio: float | None, *, digits: int = 2) -> str:
    """A factor; a dash for None."""
    return "-" if ratio is None else f"{ratio:.{digits}f}x"


def ratio(value: float | None, other: float | None) -> float | None:
    """One number over another; None if either is missing, or the second is zero."""
    return None if value is None or not other else value / other


def _markers(name: str) -> tuple[str, str]:
    return f"<!-- {name}: begin -->", f"<!-- {name}: end -->"


def _around(text: str, name: str) -> tuple[str, str, str]:
    """The page's text before the table, the table, and the text after it."""
    begin, end = _markers(name)
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page needs {begin} and {end}, once each")
    before, rest = text.split(begin)
    inside, after = rest.split(end)
    return before, inside, after
