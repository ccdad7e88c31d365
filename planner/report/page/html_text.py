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


def note(words: str) -> str:
    """What has to be known to read what follows."""
    return f'<p class="note">{text(words)}</p>'


def warning(words: str) -> str:
    """A sentence that is not to be missed."""
    return f'<p class="warning">{text(words)}.</p>'


def chart(name: str, label: str) -> str:
    """The place of a chart, with what it shows for those who do not see it."""
    return f'<div class="chart" id="{name}-chart" role="img" aria-label="{text(label)}"></div>'


def timeline_chart(label: str) -> str:
    """The place of the timeline, with the buttons that zoom it."""
    return TIMELINE.format(label=text(label))


TIMELINE = """<div class="tools" role="toolbar" aria-label="Zoom of the timeline">
<button type="button" id="zoom-in">Zoom in</button>
<button type="button" id="zoom-out">Zoom out</button>
<button type="button" id="earlier" aria-label="Earlier">&larr;</button>
<button type="button" id="later" aria-label="Later">&rarr;</button>
<button type="button" id="whole">Show all</button>
</div>
<ul class="legend" id="gantt-legend"></ul>
<div class="chart" id="gantt-chart" role="application" tabindex="0" aria-describedby="gantt-keys"
 aria-label="{label}"></div>
<p class="readout" id="gantt-readout" aria-live="polite">Point at a bar to read its times.</p>
<p class="note" id="gantt-keys">Keys in the chart: arrows go from bar to bar and from row to row, + and - zoom,
0 shows all. With Ctrl, the mouse wheel zooms; dragging moves.</p>"""
