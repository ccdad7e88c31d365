"""The page as one file: styles, scripts, the charting library and all numbers are inside, nothing is fetched."""

import base64
import gzip
import json
from importlib import resources
from string import Template

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.report.page.chart_data import chart_data
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.report.page.html_text import folded, html_table, text
from stagecut.planner.report.page.sections import numbers, sections
from stagecut.planner.report.text_table import text_table
from stagecut.planner.report.verdict import verdict

LIBRARY = "echarts-6.1.0.min.js"
SCRIPTS = ("drawing.js", "gantt.js", "charts.js", "page.js")
"""In the order in which they run, after the library."""
MOST_BYTES = 3_000_000
"""Largest page: small enough to be sent by mail."""


def page_bytes(contents: Contents) -> bytes:
    """The page; the same bytes for the same contents.

    Raises a BadInputError if the plan has so many actions that the page would be too large.
    """
    drawn = list(sections(contents))
    tiles = "".join(_tile(*each) for each in numbers(contents))
    links = "".join(f'<a href="#{name}">{text(title)}</a>' for name, title, _ in drawn)
    problem = contents.played.problem
    page = (
        Template(_asset("page.html"))
        .substitute(
            title=text(f"{problem.model.name} on {problem.cluster.name}"),
            verdict=text(verdict(contents.result, even_split_s=contents.even_split_s, basis=time_basis(problem))),
            numbers=tiles,
            links=links,
            sections="\n".join(html for *_, html in drawn),
            provenance=_provenance(contents),
            style=_asset("page.css"),
            library=_asset(LIBRARY),
            script="\n".join(map(_asset, SCRIPTS)),
            data=_packed(chart_data(contents)),
        )
        .encode()
    )
    if len(page) > MOST_BYTES:
        raise BadInputError(
            f"the report would take {len(page) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB: the plan has too "
            "many actions to draw each; plan simulate --trace writes all of them for ui.perfetto.dev"
        )
    return page


def _tile(name: str, value: str) -> str:
    """A number by its name, with what is said about it after a comma below."""
    number, _, more = value.partition(", ")
    below = f'<dd class="more">{text(more)}</dd>' if more else ""
    return f"<div><dt>{text(name)}</dt><dd>{text(number)}</dd>{below}</div>"


def _packed(data: dict[str, object]) -> str:
    """JSON, compressed: the steps of a schedule repeat themselves."""
    plain = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, mtime=0)).decode()


def _provenance(contents: Contents) -> str:
    made = contents.provenance
    options = (f"{name}: {value}" for name, value in made.options)
    rows = [
        ("solver", contents.result.solver),
        ("versions", ", ".join(f"{name} {version}" for name, version in made.versions)),
        ("options", ", ".join(options)),
        ("seed", str(made.seed)),
        *((f"SHA-256 of the {name}", digest) for name, digest in made.input_hashes),
    ]
    table = html_table(text_table(rows, "of the plan", last=("value",)), caption="How the plan was made")
    return folded("How the plan was made", table)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
