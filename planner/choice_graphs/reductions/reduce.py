"""All reductions, one after the other, until none finds anything more."""

from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.building import total_of_dearest
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.choice_graphs.reductions.additive_edges import drop_additive_edges
from stagecut.planner.choice_graphs.reductions.dominated_options import drop_dominated_options
from stagecut.planner.choice_graphs.reductions.impossible_options import drop_impossible_options
from stagecut.planner.choice_graphs.reductions.low_degree import eliminate_node
from stagecut.planner.choice_graphs.reductions.oversized_options import drop_oversized_options
from stagecut.planner.choice_graphs.reductions.workbench import Workbench
from stagecut.planner.core.numerics.arrays import Ints
from stagecut.planner.solvers.search.options import StopCheck

OF_NODES = (drop_impossible_options, drop_additive_edges, drop_dominated_options, eliminate_node)
"""From the cheapest to the dearest; each looks at one node and says whether it changed anything."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Reduced:
    """A smaller graph with the same optimum, less a constant."""

    graph: ChoiceGraph
    constant: int
    """Every choice on the smaller graph costs that much more on the whole one."""
    bench: Workbench
    nodes: list[int]
    """Which node of the whole graph each is."""

    def put_back(self, choices: Ints) -> Ints:
        """Choices on the whole graph, of the same cost up to the constant, and as legal."""
        return self.bench.put_back(self.nodes, choices)


def reduce(graph: ChoiceGraph, *, stop: StopCheck = lambda: False) -> Reduced | None:
    """Reduce a graph as far as possible, or until told to stop; None if no choice is legal.

    A sum of costs must never look impossible, so graphs whose dearest choice costs 1e17 or more stay as they are.
    """
    bench = Workbench(graph)
    if total_of_dearest(graph) < IMPOSSIBLE:
        while bench.touched and not stop():
            _reduce_nodes(bench, stop)
            if bench.is_stuck():
                return None
            bench.look_for_slack()
            drop_oversized_options(bench)
            if bench.is_stuck():
                return None
    left, nodes = bench.assemble()
    if np.any(find_moments(left).room < 0):
        return None
    return Reduced(graph=left, constant=bench.constant, bench=bench, nodes=nodes)


def _reduce_nodes(bench: Workbench, stop: StopCheck) -> None:
    while bench.touched and not bench.is_stuck() and not stop():
        # nodes of few neighbours first: what they leave is found at once
        for node in sorted(bench.touched, key=lambda v: (len(bench.tables[v]), v)):
            bench.touched.discard(node)
            if not bench.is_stuck() and not bench.gone[node]:
                _reduce_node(bench, node)


def _reduce_node(bench: Workbench, node: int) -> None:
    for reduction in OF_NODES:
        if not bench.is_stuck():
            reduction(bench, node)
