"""What is left of a choice graph when usage has a price: nodes, pairs, and the best choice for given prices."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stagecut.planner.choice_graphs.bounds.consistency import consistent_options
from stagecut.planner.choice_graphs.bounds.contraction import Contraction
from stagecut.planner.choice_graphs.bounds.messages import Core, lay_out
from stagecut.planner.choice_graphs.bounds.pieces import take_apart
from stagecut.planner.choice_graphs.bounds.tree import Tree, peel
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import Moments, find_moments
from stagecut.planner.core.arrays import Floats, Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """The graph of pairs as a forest on a small core, and the rows of usage that were taken out."""

    scale_bits: int
    """Costs are counted in units of 2^-scale_bits."""
    option: Ints
    """(remaining options,): their place among the options of the graph."""
    first_of_graph: Ints
    """(nodes,): the first option of each in the graph."""
    first_option: Ints
    """(nodes + 1,): the first remaining option of each."""
    cost: Floats
    """(remaining options,): whole numbers, without a price on usage."""
    extra_usage: Ints
    """(remaining options,): usage above the least of the node."""
    moments: Moments
    tree: Tree
    core: Core
    core_cost: Floats
    """(states,): what inner edges of the groups cost."""
    first_member: Ints
    """(states + 1,)"""
    member: Ints
    """(members of all states,): remaining options that a state of a group stands for, one per node in it."""

    @classmethod
    def of(cls, graph: ChoiceGraph, *, dearest: int, scale_bits: int) -> Self | None:
        """Take a graph apart; None if no choice of a total up to `dearest` is legal."""
        kept = consistent_options(graph, dearest=dearest)
        if not np.logical_or.reduceat(kept, graph.first_option[:-1]).all():
            return None
        moments = find_moments(replace(graph, cost=np.where(kept, graph.cost, IMPOSSIBLE)))
        if (moments.room < 0).any():
            return None
        pieces = take_apart(graph, kept, dearest=dearest, scale_bits=scale_bits)
        tree = peel(pieces)
        num_options = np.diff(pieces.first_option)
        in_tree = np.isin(np.arange(graph.num_nodes), tree.child)
        groups = Contraction(pieces.tables, np.flatnonzero(~in_tree).tolist(), num_options)
        groups.run()
        if not groups.has_choice:
            return None
        core, core_cost, first_member, member = _core_of(groups, pieces.first_option)
        return cls(
            scale_bits=scale_bits,
            option=pieces.option,
            first_of_graph=graph.first_option[:-1],
            first_option=pieces.first_option,
            cost=pieces.cost,
            extra_usage=graph.usage[pieces.option] - np.repeat(moments.least_usage, num_options),
            moments=moments,
            tree=tree,
            core=core,
            core_cost=core_cost,
            first_member=first_member,
            member=member,
        )

    def option_numbers(self, choices: Ints) -> Ints:
        """Choices among the remaining options as options of the graph, numbered within each node."""
        numbers: Ints = self.option[self.first_option[:-1] + choices] - self.first_of_graph
        return numbers

    @property
    def num_nodes(self) -> int:
        """Nodes of the whole graph."""
        return len(self.first_option) - 1


def _core_of(groups: Contraction, first_option: Ints) -> tuple[Core, Floats, Ints, Ints]:
    heads = sorted(groups.cost)
    place = {head: at for at, head in enumerate(heads)}
    tables = [{place[v]: table for v, table in groups.tables[u].items()} for u in heads]
    by_state = [
        np.stack([first_option[node] + option for node, option in groups.members[head]], axis=1) for head in heads
    ]
    num_members = np.concatenate([np.zeros(0, np.int64), *(np.full(len(m), m.shape[1]) for m in by_state)])
    return (
        lay_out(tables, [len(groups.cost[head]) for head in heads]),
        np.concatenate([np.zeros(0), *(groups.cost[head] for head in heads)]),
        np.concatenate(([0], np.cumsum(num_members))),
        np.concatenate([np.zeros(0, np.int64), *(m.ravel() for m in by_state)]),
    )
