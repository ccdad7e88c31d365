"""A model on a mesh as a choice graph, and back.

Nodes are operators with their strategies, edges are tensors with the costs of their conversions. All nodes are alive
at one moment, the end of the last forward.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.choice_graphs.graph import ChoiceGraph
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.operators.strategy import LayerStrategy, Strategy
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.sharding_search.assembling import assembled, unit_of
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.options import (
    Allowed,
    OptionCosts,
    all_strategies,
    operator_of,
    own_costs,
    return_costs,
    undominated,
)
from stagecut.planner.sharding_search.pair_tables import PairTables
from stagecut.planner.sharding_search.wiring import OperatorNode, Ties, maker_of, wires

Key = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharding:
    """How every operator of a model is divided over a mesh."""

    layers: tuple[LayerStrategy, ...]

    def strategy(self, node: OperatorNode) -> Strategy:
        """That of an operator."""
        return self.layers[node.layer].operators[node.index]


@dataclass(frozen=True, kw_only=True, eq=False)
class ShardingGraph:
    """The choice graph of a case, and what its numbers mean."""

    case: ShardingCase
    graph: ChoiceGraph
    unit_s: float
    """Seconds of a cost of 1."""
    members: dict[OperatorNode, int]
    """The node of the graph that stands for an operator."""
    options: tuple[tuple[Strategy, ...], ...]
    """Of every node of the graph but that of working memory, which comes last."""
    rounding_s: float
    """The cost of a choice differs from its seconds by at most this: half a unit for each node and table."""

    def least_s(self, bound: int) -> float:
        """Seconds below which no choice is, given a bound on the costs."""
        return max(0.0, bound * self.unit_s * (1 - 1e-12) - self.rounding_s)

    @property
    def least_bytes(self) -> int:
        """No choice uses less: the least of every node."""
        return sum(np.minimum.reduceat(self.graph.usage, self.graph.first_option[:-1]).tolist())

    def decode(self, choices: Sequence[int]) -> Sharding:
        """The strategies of a choice."""

        def chosen(node: OperatorNode) -> Strategy:
            number = self.members[node]
            return self.options[number][choices[number]]

        return Sharding(
            layers=tuple(
                LayerStrategy(operators=tuple(chosen(OperatorNode(number, i)) for i in range(len(operators_of(layer)))))
                for number, layer in enumerate(self.case.model.layers)
            )
        )


class _Builder:
    """Nodes and edges under their keys; what is added under an equal key counts together."""

    def __init__(self, case: ShardingCase, *, tied: bool) -> None:
        self.case = case
        self.ties = Ties(case.model, tied=tied)
        self.tables = PairTables(case.mesh)
        self.members: dict[OperatorNode, Key] = {}
        self.options: dict[Key, tuple[Strategy, ...]] = {}
        self.costs: dict[Key, OptionCosts] = {}
        self.pairs: dict[tuple[Key, Key], Floats] = {}

    def add(self, node: OperatorNode, options: Sequence[Strategy], costs: OptionCosts) -> None:
        """Add a node."""
        key = self.ties.key(node)
        self.members[node] = key
        self.options.setdefault(key, tuple(options))
        self.costs[key] = self.costs[key] + costs if key in self.costs else costs

    def add_operators(self, allowed: Allowed) -> None:
        """Add the operators of all layers with their strategies."""
        case, prepared = self.case, dict[Key, tuple[Sequence[Strategy], OptionCosts]]()
        works = layer_works(case.model, case.device, case.micro_batch)
        same = Ties(case.model, tied=True)
        for number, own in enumerate(works):
            for index, whole_s in enumerate(map(sum, zip(own.forward_s, own.backward_s, strict=True))):
                node = OperatorNode(number, index)
                key = same.key(node)
                if key not in prepared:
                    fixed_s = 2 * own.launch_s if index == 0 else 0.0
                    prepared[key] = self._kept(node, allowed, whole_s=whole_s, fixed_s=fixed_s)
                self.add(node, *prepared[key])

    def _kept(
        self, node: OperatorNode, allowed: Allowed, *, whole_s: float, fixed_s: float
    ) -> tuple[Sequence[Strategy], OptionCosts]:
        operator = operator_of(self.case.model, node)
        options = allowed(node.layer, operator)
        costs = own_costs(self.case, node, options, whole_s=whole_s, fixed_s=fixed_s)
        keep = undominated(options, costs)
        return [option for option, kept in zip(options, keep, strict=True) if kept], costs.chosen(keep)

    def add_returns(self) -> None:
        """Add what returning their outputs costs layers."""
        for number in range(self.case.model.num_layers):
            node, tensor = maker_of(self.case.model, number)
            key = self.members[node]
            seconds = self.tables.returns(tensor, self.options[key], samples=self.case.micro_batch)
            self.costs[key] = self.costs[key] + return_costs(self.case, number, self.options[key], seconds)

    def add_wires(self) -> None:
        """Add conversions, per iteration."""
        known: dict[Hashable, Floats] = {}
        for wire in wires(self.case.model):
            pair = (self.members[wire.source], self.members[wire.target])
            same = (*pair, wire.crosses, wire.tensor, wire.port)
            if same not in known:
                sources, targets = (self.options[key] for key in pair)
                seconds = self.tables.table(wire, sources, targets, samples=self.case.micro_batch)
                known[same] = self.case.num_microbatches * seconds
            self.pairs[pair] = self.pairs[pair] + known[same] if pair in self.pairs else known[same]


def sharding_graph(case: ShardingCase, *, tied: bool = False, allowed: Allowed | None = None) -> ShardingGraph:
    """Build the choice graph of a case.

    Costs are seconds per iteration in whole picoseconds, or a coarser unit where 2^62 of them are too few; usages are
    bytes on each device, rounded up. Working memory is the largest of any operator: it is an option of a node of its
    own, which excludes the strategies that need more.

    Parameters
    ----------
    tied
        Whether the same operators of equal layers have equal strategies, as in the paper.
    allowed
        The strategies of an operator; by default all that are legal.
    """
    builder = _Builder(case, tied=tied)
    builder.add_operators(allowed or all_strategies(case))
    builder.add_returns()
    builder.add_wires()
    numbers = {key: number for number, key in enumerate(builder.options)}
    costs = [builder.costs[key] for key in numbers]
    pairs = [((numbers[u], numbers[v]), table) for (u, v), table in builder.pairs.items()]
    unit_s = unit_of([*(own.seconds for own in costs), *(table for _, table in pairs)])
    return ShardingGraph(
        case=case,
        graph=assembled(case, costs, pairs, unit_s=unit_s),
        unit_s=unit_s,
        members={node: numbers[key] for node, key in builder.members.items()},
        options=tuple(builder.options.values()),
        rounding_s=(len(costs) + len(pairs)) * unit_s / 2,
    )
