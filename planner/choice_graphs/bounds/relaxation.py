"""What is left of a choice graph when usage has a price: groups of nodes, and pairs of their options."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from stagecut.planner.choice_graphs.bounds.messages import Core, lay_out
from stagecut.planner.choice_graphs.bounds.scaled import Scaled, scale
from stagecut.planner.choice_graphs.bounds.tree import Tree, peel
from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph, contract
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces, usage_pieces
from stagecut.planner.choice_graphs.contraction.support import supported_options
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.core.numerics.arrays import Ints


@dataclass(frozen=True, kw_only=True, eq=False)
class Relaxation:
    """The pairs of groups as a forest on a core, and the rows of usage that were taken out."""

    contracted: ContractedGraph
    usage: UsagePieces
    scaled: Scaled
    """The groups' options that remain, and their costs."""
    tree: Tree
    core: Core
    core_node: Ints
    """Which group each node of the core is."""

    @classmethod
    def of(cls, graph: ChoiceGraph, *, dearest: int, scale_bits: int) -> Self | None:
        """Contract and scale a graph and peel its leaves; None if no choice of a total up to `dearest` is legal.

        Costs are at least 0, so no such choice contains an option or a pair that costs more by itself.
        """
        contracted = contract(graph)
        if contracted is None:
            return None
        usage = usage_pieces(contracted)
        pairs = _cheap(contracted.pairs, dearest)
        kept = supported_options(pairs)
        if (usage.room < 0).any() or not np.logical_or.reduceat(kept, pairs.first_option[:-1]).all():
            return None
        scaled = scale(pairs, kept, scale_bits=scale_bits)
        tables = scaled.tables
        tree = peel(tables)
        core_node = np.setdiff1d(np.arange(pairs.num_nodes), tree.child)
        place = {node: at for at, node in enumerate(core_node.tolist())}
        core = lay_out(
            [{place[v]: table for v, table in tables[u].items()} for u in place],
            np.diff(scaled.first_option)[core_node].tolist(),
        )
        return cls(contracted=contracted, usage=usage, scaled=scaled, tree=tree, core=core, core_node=core_node)

    def option_numbers(self, choices: Ints) -> Ints:
        """Choices of the groups, among the options that remain, as options of the groups."""
        first = self.contracted.pairs.first_option[:-1]
        numbers: Ints = self.scaled.option[self.scaled.first_option[:-1] + choices] - first
        return numbers


def _cheap(pairs: ChoiceGraph, dearest: int) -> ChoiceGraph:
    return replace(
        pairs,
        cost=np.where(pairs.cost > dearest, IMPOSSIBLE, pairs.cost),
        pair_cost=np.where(pairs.pair_cost > dearest, IMPOSSIBLE, pairs.pair_cost),
    )
