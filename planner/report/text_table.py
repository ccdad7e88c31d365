"""Tables of plain text, drawn for a terminal or a file."""

from collections.abc import Iterable
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from stagecut.planner.core.visible import visible
from stagecut.planner.report.visible_stream import drawn_on

PLAIN_WIDTH = 1000
"""Columns where the output is no terminal: nothing is wrapped."""


def text_table(*left: str, right: tuple[str, ...] = (), last: tuple[str, ...] = ()) -> Table:
    """An empty table with these headers; long cells but those of the first column are wrapped.

    Parameters
    ----------
    left, last
        Columns of text, before and behind the others.
    right
        Columns of numbers, aligned to the right.
    """
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for index, name in enumerate(left):
        table.add_column(Text(visible(name)), overflow="fold", no_wrap=index == 0)
    for name in right:
        table.add_column(Text(visible(name)), overflow="fold", justify="right")
    for name in last:
        table.add_column(Text(visible(name)), overflow="fold")
    return table


def add_row(table: Table, *cells: str) -> None:
    """Add a row of plain text: names from files are no markup, and nothing in them is hidden."""
    table.add_row(*(Text(visible(cell)) for cell in cells))


def print_table(table: Table, stream: TextIO, *, narrower: Iterable[Table] = ()) -> None:
    """Write a table; on a terminal the first one that it is wide enough for, elsewhere the first.

    Parameters
    ----------
    narrower
        The same in fewer columns, from wide to narrow. Where none is narrow enough, the last one is
        printed, its cells wrapped.
    """
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
