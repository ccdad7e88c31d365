"""A graph written in the format of the ASPLOS 2025 contest, plain or gzipped."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.io.documents.write import write_bytes


def write_choice_graph(path: Path, graph: ChoiceGraph, *, force: bool = False) -> None:
    """Write a file that :func:`~stagecut.planner.choice_graphs.reading.read_choice_graph` reads as the same graph.

    Gzipped if its name ends in .gz. Raises the errors of :func:`stagecut.planner.io.documents.write.write_bytes`.
    """
    intervals = ",".join(f"[{start},{stop}]" for start, stop in zip(graph.start, graph.stop, strict=True))
    ends = ",".join(f"[{first},{second}]" for first, second in graph.ends.tolist())
    nodes = f'"intervals":[{intervals}],"costs":{_rows(graph.first_option, graph.cost)}'
    nodes += f',"usages":{_rows(graph.first_option, graph.usage)}'
    edges = f'"nodes":[{ends}],"costs":{_rows(graph.first_pair, graph.pair_cost)}'
    problem = f'"name":{json.dumps(graph.name)},"nodes":{{{nodes}}},"edges":{{{edges}}}'
    content = f'{{"problem":{{{problem},"usage_limit":{graph.usage_limit}}}}}\n'.encode()
    write_bytes(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content, force=force)


def _rows(first: Ints, values: Ints) -> str:
    """A list of lists."""
    rows = (",".join(map(str, values[begin:end].tolist())) for begin, end in pairwise(first.tolist()))
    return f"[{','.join(f'[{row}]' for row in rows)}]"
