"""Graphs contracted until nothing can be merged, and choices carried there and back."""

from dataclasses import dataclass, replace

import numpy as np

from stagecut.planner.choice_graphs.contraction.grouped import grouped_graph
from stagecut.planner.choice_graphs.contraction.one_to_one import groups_of_nodes
from stagecut.planner.choice_graphs.contraction.support import supported_options
from stagecut.planner.choice_graphs.contraction.tables import Groups
from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.numerics.arrays import Bools, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class ContractedGraph:
    """Groups of nodes that determine each other, as the nodes of a graph with the same costs for the same choices.

    Usage stays with the nodes, since those of a group are alive at different moments.
    """

    graph: ChoiceGraph
    """The graph before."""
    pairs: ChoiceGraph
    """Groups, their costs, and what is left of the edges; never alive."""
    groups: Groups
    """Of the nodes of the graph before."""

    def expand(self, choices: Ints) -> Ints:
        """The options of the nodes (nodes,) for those of the groups."""
        chosen: Ints = self.groups.option[self.groups.first_map[:-1] + choices[self.groups.group]]
        return chosen

    def restrict(self, choices: Ints) -> Ints:
        """The options of the groups for those of the nodes, by the first node of each group.

        Raises
        ------
        ValueError
            If an option is in no possible choice.
        """
        first_node = np.unique(self.groups.group, return_index=True)[1].tolist()
        first, option = self.groups.first_map, self.groups.option
        return np.array(
            [option[first[v] : first[v + 1]].tolist().index(choices[v]) for v in first_node], dtype=np.int64
        )

    def supported(self) -> Bools:
        """Which options (options,) of the graph before are options of groups."""
        kept = np.zeros(len(self.graph.cost), dtype=np.bool_)
        kept[np.repeat(self.graph.first_option[:-1], np.diff(self.groups.first_map)) + self.groups.option] = True
        return kept


def contract(graph: ChoiceGraph) -> ContractedGraph | None:
    """Leave out options without support and merge groups, until neither changes anything.

    Every choice of less than IMPOSSIBLE in all remains, at the same cost, and none is added. Edges whose costs are a
    cost per row plus one per column become such costs. None if there is no such choice.
    """
    found = _uncontracted(graph)
    while True:
        before = found.pairs
        groups = groups_of_nodes(before, supported_options(before))
        if np.any(np.diff(groups.first_map) == 0):
            return None
        found = replace(found, pairs=grouped_graph(before, groups), groups=_composed(found.groups, groups))
        if _size(found.pairs) == _size(before):
            return found


def _uncontracted(graph: ChoiceGraph) -> ContractedGraph:
    none = np.zeros(graph.num_nodes, dtype=np.int64)
    option = np.arange(len(graph.cost)) - np.repeat(graph.first_option[:-1], graph.num_options)
    return ContractedGraph(
        graph=graph,
        pairs=replace(graph, usage=np.zeros_like(graph.usage), start=none, stop=none),
        groups=Groups(np.arange(graph.num_nodes), graph.first_option, option),
    )


def _composed(inner: Groups, outer: Groups) -> Groups:
    """Nodes to groups of groups."""
    length = np.diff(outer.first_map)[inner.group]
    first = np.concatenate([[0], np.cumsum(length)])
    inside = np.arange(first[-1]) - np.repeat(first[:-1], length)
    middle = outer.option[np.repeat(outer.first_map[inner.group], length) + inside]
    return Groups(outer.group[inner.group], first, inner.option[np.repeat(inner.first_map[:-1], length) + middle])


def _size(graph: ChoiceGraph) -> tuple[int, int, int]:
    return graph.num_nodes, len(graph.cost), graph.num_edges
