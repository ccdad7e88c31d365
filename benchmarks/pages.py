"""Measured tables: as Markdown, between markers in a page, and as JSON beside the drivers."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from planner.io.plan_file import installed_versions

ROOT = Path(__file__).parent.parent
README, SOLVER_PAGE, EXECUTOR_PAGE = ROOT / "README.md", ROOT / "docs" / "solver.md", ROOT / "docs" / "executor.md"
RESULTS = ROOT / "benchmarks" / "results"


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are numbers."""
    rule = ["---", *["--:"] * (len(head) - 1)]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows)).replace("| --- |", "|---|")


def with_table(text: str, name: str, table: str) -> str:
    """The page with the table between the markers of that name.

    Raises
    ------
    ValueError
        If the page does not have each of the two markers once.
    """
    begin, end = (f"<!-- {name}: {side} -->" for side in ("begin", "end"))
    if text.count(begin) != 1 or text.count(end) != 1:
        raise ValueError(f"the page needs {begin} and {end}, once each")
    before, rest = text.split(begin)
    _, after = rest.split(end)
    return f"{before}{begin}\n{table}\n{end}{after}"


def put_tables(page: Path, tables: Mapping[str, str]) -> None:
    """Replace tables in a page."""
    text = page.read_text(encoding="utf-8")
    for name, table in tables.items():
        text = with_table(text, name, table)
    page.write_text(text, encoding="utf-8")


def keep_results(name: str, results: Mapping[str, object], *, folder: Path = RESULTS) -> None:
    """Write `benchmarks/results/NAME.json`, with the versions that gave them."""
    folder.mkdir(parents=True, exist_ok=True)
    tree = {"versions": installed_versions(), **results}
    (folder / f"{name}.json").write_text(json.dumps(tree, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def percent(share: float | None) -> str:
    """Two digits after the point; a dash for nothing."""
    return "-" if share is None else f"{100 * share:.2f} %"


def whole_seconds(seconds: float | None) -> str:
    """With one digit after the point below ten seconds; a dash for nothing."""
    if seconds is None:
        return "-"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
