"""The contest's JSON, plain or gzipped, read into a graph."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np

from stagecut.planner.choice_graphs.building import build
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.arrays import Ints


def read_choice_graph(path: Path) -> ChoiceGraph:
    """Read a graph from a file in the format of the ASPLOS 2025 contest (google/iopddl)."""
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        problem: dict[str, Any] = json.load(file)["problem"]
    nodes, edges = problem["nodes"], problem["edges"]
    intervals = np.array(nodes["intervals"], dtype=np.int64).reshape(-1, 2)
    first_option, cost = _ragged(nodes["costs"])
    first_pair, pair_cost = _ragged(edges["costs"])
    return build(
        name=problem["name"],
        first_option=first_option,
        cost=cost,
        usage=_ragged(nodes["usages"])[1],
        start=intervals[:, 0].copy(),
        stop=intervals[:, 1].copy(),
        ends=np.array(edges["nodes"], dtype=np.int64).reshape(-1, 2),
        first_pair=first_pair,
        pair_cost=pair_cost,
        usage_limit=problem["usage_limit"],
    )


def _ragged(rows: list[list[int]]) -> tuple[Ints, Ints]:
    lengths = [len(row) for row in rows]
    first = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
    return first, np.fromiter((value for row in rows for value in row), dtype=np.int64, count=int(first[-1]))
