"""Tables of plain text, drawn for a terminal or a file."""

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.report.visible_stream import drawn_on

PLAIN_WIDTH = 1000
"""Columns where the output is not a terminal: nothing is wrapped."""


def text_table(rows: Iterable[Iterable[str]], *left: str, right: Sequence[str] = (), last: Sequence[str] = ()) -> Table:
    """A table of plain text; long cells other than those of the first column are wrapped.

    The headers `left` and `last` are those of columns of text, `right` those of numbers, aligned to the right.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for index, name in enumerate((*left, *right, *last)):
        is_number = len(left) <= index < len(left) + len(right)
        table.add_column(
            Text(visible(name)),
            overflow="fold",
            justify="right" if is_number else "left",
            no_wrap=index == 0 < len(left),
        )
    for cells in rows:
        add_row(table, cells)
    return table


def chosen_columns(rows: Sequence[Mapping[str, str]], columns: Iterable[str], *, text: frozenset[str]) -> Table:
    """A table of some columns of rows given by column; those in `text` come first, the others are numbers."""
    shown = list(columns)
    left, right = [name for name in shown if name in text], [name for name in shown if name not in text]
    return text_table(([row[name] for name in (*left, *right)] for row in rows), *left, right=right)


def add_row(table: Table, cells: Iterable[str]) -> None:
    """Add a row of plain text: names from files are not markup, and nothing in them is hidden."""
    table.add_row(*(Text(visible(cell)) for cell in cells))


def print_table(table: Table, *narrower: Table, stream: TextIO | None = None) -> None:
    """Write a table to stdout or another stream: on a terminal the first one that fits its width, else the first.

    If none is narrow enough for the terminal, the last one is printed with its cells wrapped.
    """
    stream = stream or sys.stdout
    if stream.isatty():
        console = Console(file=drawn_on(stream), highlight=False)
        tables = (table, *narrower)
        console.print(next((each for each in tables if _width(console, each) <= console.width), tables[-1]))
        return
    console = Console(file=stream, highlight=False, width=PLAIN_WIDTH)
    with console.capture() as drawn:
        console.print(table)
    stream.writelines(f"{line.rstrip()}\n" for line in drawn.get().splitlines())


def _width(console: Console, table: Table) -> int:
    """Columns that a table takes where nothing is wrapped."""
    return console.measure(table, options=console.options.update(max_width=PLAIN_WIDTH)).maximum
