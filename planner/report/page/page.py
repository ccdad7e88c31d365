"""A page as one file: styles, scripts, the charting library and all numbers are inside, nothing is fetched."""

import base64
import gzip
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from string import Template

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.problem import Problem
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.report.page.html_text import folded, html_table, section, text
from stagecut.planner.report.page.timeline_data import Data
from stagecut.planner.report.text_table import text_table

LIBRARY = "echarts-6.1.0.min.js"
SCRIPTS = ("drawing.js", "gantt.js", "charts.js", "page.js")
"""In the order in which they run, after the library."""
BELOW = re.compile(r", | (?=samples/s|minibatch|per )")
"""Where the large letters of a number end."""
MOST_BYTES = 3_000_000
"""Largest page: small enough to be sent by mail."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Section:
    """A part of a page under a heading of its own."""

    name: str
    title: str
    parts: Iterable[str]
    """HTML; a section without any is left out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Page:
    """What a page shows about a plan, whatever its kind."""

    problem: Problem
    verdict: str
    numbers: Iterable[tuple[str, str]]
    """The most important ones, by name."""
    sections: Iterable[Section]
    data: Data
    """What the charts of the sections draw."""
    solver: str
    provenance: Provenance


def page_bytes(page: Page) -> bytes:
    """The file; the same bytes for the same page.

    Raises a BadInputError if the plan has so many actions that the page would be too large.
    """
    drawn = [(each.name, each.title, inside) for each in page.sections if (inside := list(each.parts))]
    links = "".join(f'<a href="#{name}">{text(title)}</a>' for name, title, _ in drawn)
    written = (
        Template(_asset("page.html"))
        .substitute(
            title=text(f"{page.problem.model.name} on {page.problem.cluster.name}"),
            verdict=text(page.verdict),
            numbers="".join(_tile(*each) for each in page.numbers),
            links=links,
            sections="\n".join(section(*each) for each in drawn),
            provenance=_provenance(page),
            style=_asset("page.css"),
            library=_asset(LIBRARY),
            script="\n".join(map(_asset, SCRIPTS)),
            data=_packed(page.data),
        )
        .encode()
    )
    if len(written) > MOST_BYTES:
        raise BadInputError(
            f"the report would take {len(written) / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB: the plan has too "
            "many actions to draw each; plan simulate --trace writes all of them for ui.perfetto.dev"
        )
    return written


def _tile(name: str, value: str) -> str:
    """A number by its name, and below it a long unit, or what is said about it after a comma."""
    number, *rest = BELOW.split(value, maxsplit=1)
    more = "".join(rest)
    below = f'<dd class="more">{text(more)}</dd>' if more else ""
    return f"<div><dt>{text(name)}</dt><dd>{text(number)}</dd>{below}</div>"


def _packed(data: Data) -> str:
    """JSON, compressed: the steps of a schedule repeat themselves."""
    plain = json.dumps(data, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    return base64.b64encode(gzip.compress(plain, mtime=0)).decode()


def _provenance(page: Page) -> str:
    made = page.provenance
    options = (f"{name}: {value}" for name, value in made.options)
    rows = [
        ("solver", page.solver),
        ("versions", ", ".join(f"{name} {version}" for name, version in made.versions)),
        ("options", ", ".join(options)),
        ("seed", str(made.seed)),
        *((f"SHA-256 of the {name}", digest) for name, digest in made.input_hashes),
    ]
    table = html_table(text_table(rows, "of the plan", last=("value",)), caption="How the plan was made")
    return folded("How the plan was made", table)


def _asset(name: str) -> str:
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")
