"""Our answers on a folder of choice graphs beside published ones.

    python -m benchmarks.choice_graphs FOLDER                  every graph, within the contest's time limit
    python -m benchmarks.choice_graphs FOLDER --only B,G       these only
    python -m benchmarks.choice_graphs FOLDER --time-limit 600 with this limit for all
    python -m benchmarks.choice_graphs FOLDER --rivals         also other methods, each within the same limit
    python -m benchmarks.choice_graphs FOLDER --docs           put the tables into docs/choice_graphs.md

Every graph is solved by `plan shard` as a process of its own: its seconds are from start to end, reading included.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.choice_graphs.instances import LIMIT_S, PUBLISHED, instances
from benchmarks.choice_graphs.rivals import rivals_of
from benchmarks.report.pages import ROOT, markdown, put_tables
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.choice_graphs.reading import read_choice_graph
from stagecut.planner.choice_graphs.reductions.reduce import reduce

PAGE = ROOT / "docs" / "choice_graphs.md"
HEAD = ["graph", "nodes", "edges", "limit s", "our cost", "bound", "gap", "s", "GB", "best team", "XLA", "ours / best"]
REDUCED_HEAD = ["graph", "nodes with a choice", "edges", "pairs of options", "moments that can overflow", "s"]
RIVAL_HEAD = ["graph", "method", "cost", "bound", "s"]


def main(arguments: Sequence[str]) -> None:
    """Measure, print, and update the page if asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="", help="names separated by commas")
    parser.add_argument("--time-limit", type=float, help="seconds; default: the contest's")
    parser.add_argument("--rivals", action="store_true")
    parser.add_argument("--docs", action="store_true")
    chosen = parser.parse_args(arguments)
    rows, rival_rows, reduced_rows = [], [], []
    for name, path in instances(chosen.folder, tuple(filter(None, chosen.only.split(",")))).items():
        published = PUBLISHED.get(name)
        limit_s = chosen.time_limit or (LIMIT_S if published is None else published.time_limit_s)
        answer, wall_s, peak_bytes = shard(path, limit_s)
        rows.append(row(name, path, limit_s, answer, wall_s, peak_bytes))
        print(markdown(HEAD, rows[-1:]), flush=True)
        reduced_rows.append(reduced_row(name, path))
        if chosen.rivals:
            rival_rows.append([name, "stagecut", _label(answer["objective"]), _label(answer["bound"]), f"{wall_s:.1f}"])
            graph = read_choice_graph(path)
            for method, solve in rivals_of(graph).items():
                found = solve(graph, limit_s)
                rival_rows.append([name, method, _label(found.cost), _label(found.bound), f"{found.seconds:.1f}"])
                print(markdown(RIVAL_HEAD, rival_rows[-1:]), flush=True)
    tables = {"contest": markdown(HEAD, rows), "reductions": markdown(REDUCED_HEAD, reduced_rows)}
    tables |= {"rivals": markdown(RIVAL_HEAD, rival_rows)} if rival_rows else {}
    print("\n\n".join(tables.values()))
    if chosen.docs:
        put_tables(PAGE, tables)


def shard(path: Path, limit_s: float) -> tuple[dict[str, object], float, int]:
    """The answer of `plan shard`, its seconds from start to end, and its largest resident memory in bytes."""
    command = [sys.executable, "-m", "stagecut", "shard", "--choice-graph", str(path), "--json", "--quiet"]
    started = time.perf_counter()
    with subprocess.Popen([*command, "--time-limit", str(limit_s), "--gap", "0"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        printed = process.stdout.read()
        _, _, used = os.wait4(process.pid, 0)
        process.returncode = 0
    return json.loads(printed), time.perf_counter() - started, used.ru_maxrss * 1024


def row(name: str, path: Path, limit_s: float, answer: dict[str, object], wall_s: float, peak_bytes: int) -> list[str]:
    """One line of the table."""
    graph, published, objective = read_choice_graph(path), PUBLISHED.get(name), answer["objective"]
    gap = answer["gap"]
    ratio = "-"
    if published is not None and isinstance(objective, int):
        ratio = f"{objective / published.best:.6f}"
    return [
        name,
        _label(graph.num_nodes),
        _label(graph.num_edges),
        f"{limit_s:g}",
        _label(objective),
        _label(answer["bound"]),
        f"{100 * gap:.4f} %" if isinstance(gap, float) else "-",
        f"{wall_s:.1f}",
        f"{peak_bytes / 1e9:.1f}",
        _label(None if published is None else published.best_team),
        _label(None if published is None else published.xla),
        ratio,
    ]


def reduced_row(name: str, path: Path) -> list[str]:
    """What the reductions leave of a graph: before, after."""
    graph = read_choice_graph(path)
    started = time.process_time()
    reduced = reduce(graph)
    seconds = time.process_time() - started
    sizes = [_sizes(each) for each in (graph, graph if reduced is None else reduced.graph)]
    return [name, *(f"{before:,} -> {after:,}" for before, after in zip(*sizes, strict=True)), f"{seconds:.1f}"]


def _sizes(graph: ChoiceGraph) -> tuple[int, ...]:
    num_moments = find_moments(graph).num_moments
    return int((graph.num_options > 1).sum()), graph.num_edges, len(graph.pair_cost), num_moments


def _label(number: object) -> str:
    return f"{number:,.0f}" if isinstance(number, int | float) else "-"


if __name__ == "__main__":
    main(sys.argv[1:])
