"""Parts of sections that pages about plans of either kind have."""

from collections.abc import Iterable, Iterator, Sequence

from rich.table import Table

from stagecut.planner.report.labels import counted_label, percent_label, seconds_label
from stagecut.planner.report.page.html_text import chart, folded, html_table
from stagecut.planner.report.text_table import text_table
from stagecut.planner.simulator.binding import LinkUse


def chart_and_table(name: str, label: str, table: Table, *, summary: str, caption: str) -> Iterator[str]:
    """A chart, and a table with its numbers that is shown once its summary is opened."""
    yield chart(name, f"{label}: the table below has the numbers")
    yield folded(summary, html_table(table, caption=caption))


def link_parts(links: Sequence[LinkUse], total_s: float, *, columns: tuple[str, str], caption: str) -> Iterator[str]:
    """Links in use of `total_s` seconds; the columns are those of seconds and shares. Nothing without links."""
    if links:
        rows = ((use.name, seconds_label(use.busy_s), percent_label(use.busy_s / total_s)) for use in links)
        table = text_table(rows, "link", right=columns)
        summary = f"The {counted_label(len(links), 'link')} in use"
        yield from chart_and_table("links", "How long each link is in use", table, summary=summary, caption=caption)


def search_parts(solver: str, steps: Iterable[tuple[str, str, str]], *, best: str, bound: str) -> Iterator[str]:
    """Seconds, best value and bound of each step of a search; nothing without steps."""
    if rows := list(steps):
        table = text_table(rows, right=("after", best, bound))
        label, caption = f"{best.capitalize()} and {bound} over the search", f"Steps of the search by {solver}"
        yield from chart_and_table("search", label, table, summary="All steps", caption=caption)
