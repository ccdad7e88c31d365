"""The JSON of the ASPLOS 2025 contest on intra-operator parallelism, plain or gzipped, read into a graph."""

from pathlib import Path
from typing import Any

import numpy as np

from stagecut.planner.choice_graphs.building import build
from stagecut.planner.choice_graphs.faults import check, row_fault
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.text import Text
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.arrays import Ints

_LAYOUT: dict[str, Any] = {
    "problem": {
        "name": Text.string,
        "nodes": {"intervals": Text.table, "costs": Text.table, "usages": Text.table},
        "edges": {"nodes": Text.table, "costs": Text.table},
        "usage_limit": Text.whole_number,
    }
}


def read_choice_graph(path: Path) -> ChoiceGraph:
    """Read a graph from a file in the format of the contest (github.com/google/iopddl), in one pass.

    Memory is that of the tables, 8 bytes a number, and little more. Costs of 1e17 and more mean impossible.

    Raises
    ------
    BadInputError
        With file, line and place, as in `nodes.costs[17]`, of every fault found.
    """
    with Text(path) as text:
        found = _read_object(text, _LAYOUT, "")
        text.end()
    try:
        return _graph(found["problem"])
    except BadInputError as fault:
        raise BadInputError(*(f"{path}: {line}" for line in fault.complaints)) from None


def _read_object(text: Text, layout: dict[str, Any], place: str) -> dict[str, Any]:
    """Consume an object that has exactly the keys of the layout."""
    found: dict[str, Any] = {}
    text.require("{", place)
    while not text.next_is("}"):
        if found:
            text.require(",", place)
        key = text.string(place)
        inside = f"{place}.{key}" if place not in ("", "problem") else key
        if key not in layout or key in found:
            text.refuse(inside, "twice" if key in found else f"unknown; {place or 'the document'} has {_keys(layout)}")
        text.require(":", inside)
        wanted = layout[key]
        found[key] = _read_object(text, wanted, inside) if isinstance(wanted, dict) else wanted(text, inside)
    if missing := layout.keys() - found.keys():
        text.refuse(place, f"missing: {_keys(missing)}")
    return found


def _keys(keys: Any) -> str:
    return ", ".join(sorted(keys))


def _graph(problem: dict[str, Any]) -> ChoiceGraph:
    nodes, edges = problem["nodes"], problem["edges"]
    intervals, ends = nodes["intervals"], edges["nodes"]
    (first_option, cost), (first_usage, usage) = nodes["costs"], nodes["usages"]
    first_pair, pair_cost = edges["costs"]
    check(
        row_fault("nodes.intervals", np.diff(intervals[0]) != 2, lambda _: "not a list of two moments"),
        row_fault("edges.nodes", np.diff(ends[0]) != 2, lambda _: "not a list of two nodes"),
        _other_length("nodes.intervals", intervals[0], "nodes.costs", first_option),
        _other_length("nodes.usages", first_usage, "nodes.costs", first_option),
        _other_length("edges.costs", first_pair, "edges.nodes", ends[0]),
    )
    num_options, num_usages = np.diff(first_option), np.diff(first_usage)
    check(
        row_fault(
            "nodes.usages",
            num_usages != num_options,
            lambda v: f"{num_usages[v]} usages for {num_options[v]} options",
        )
    )
    return build(
        name=problem["name"],
        first_option=first_option,
        cost=cost,
        usage=usage,
        start=intervals[1][::2].copy(),
        stop=intervals[1][1::2].copy(),
        ends=ends[1].reshape(-1, 2),
        first_pair=first_pair,
        pair_cost=pair_cost,
        usage_limit=problem["usage_limit"],
    )


def _other_length(table: str, first: Ints, other: str, first_other: Ints) -> str:
    rows, other_rows = len(first) - 1, len(first_other) - 1
    return "" if rows == other_rows else f"{table}: {rows} rows, but {other} has {other_rows}"
