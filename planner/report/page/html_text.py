"""Text and tables as HTML."""

from collections.abc import Iterable
from html import escape

from rich.table import Table

from stagecut.planner.core.messages.visible import visible


def text(words: str) -> str:
    """Words as HTML: nothing in them is markup, and nothing is hidden."""
    return escape(visible(words))


def html_table(table: Table, *, caption: str) -> str:
    """A table of :func:`stagecut.planner.report.text_table.text_table`; narrow screens show a row as a list.

    The roles are stated, since a browser forgets them where a table is not laid out as one.
    """
    names = [text(str(column.header)) for column in table.columns]
    numeric = [' class="number"' if column.justify == "right" else "" for column in table.columns]
    heads = "".join(
        f'<th role="columnheader" scope="col"{kind}>{name}</th>' for name, kind in zip(names, numeric, strict=True)
    )
    rows = (
        "".join(
            f'<td role="cell" data-name="{name}"{kind}>{text(str(cell))}</td>'
            for name, kind, cell in zip(names, numeric, cells, strict=True)
        )
        for cells in zip(*(column.cells for column in table.columns), strict=True)
    )
    body = "".join(f'<tr role="row">{row}</tr>\n' for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{text(caption)}"><table role="table">'
        f"<caption>{text(caption)}</caption>"
        f'<thead role="rowgroup"><tr role="row">{heads}</tr></thead>\n'
        f'<tbody role="rowgroup">{body}</tbody></table></div>'
    )


def folded(summary: str, *parts: str) -> str:
    """Parts that are shown once their summary is opened."""
    return f"<details><summary>{text(summary)}</summary>{''.join(parts)}</details>"


def section(name: str, title: str, parts: Iterable[str]) -> str:
    """A section with its title."""
    inside = "\n".join(parts)
    heading = f'<h2 id="{name}-title">{text(title)}</h2>'
    return f'<section id="{name}" aria-labelledby="{name}-title">{heading}\n{inside}</section>'


def chart(name: str, label: str, *, note: str = "") -> str:
    """The place of a chart, with what it shows for those who do not see it."""
    told = f'<p class="note">{text(note)}</p>' if note else ""
    return f'{told}<div class="chart" id="{name}-chart" role="img" aria-label="{text(label)}"></div>'
