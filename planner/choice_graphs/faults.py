"""Faults of tables, one line for each kind, with the first place where it occurs."""

from collections.abc import Callable

import numpy as np

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Bools


def check(*faults: str) -> None:
    """Raise :class:`BadInputError` with the faults that are not empty, if any is."""
    found = [fault for fault in faults if fault]
    if found:
        raise BadInputError(*found)


def row_fault(table: str, bad: Bools, text: Callable[[int], str]) -> str:
    """The first bad row of a table as one line, and how many more there are; empty if there is none."""
    rows = np.flatnonzero(bad)
    if len(rows) == 0:
        return ""
    more = f" (and {len(rows) - 1} more)" if len(rows) > 1 else ""
    return f"{table}[{rows[0]}]: {text(int(rows[0]))}{more}"
