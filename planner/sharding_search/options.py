"""The options of nodes: strategies of operators, and what they cost."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.numerics.arrays import Bools, Floats
from stagecut.planner.core.operators.operators import INPUT, Operator
from stagecut.planner.core.operators.strategy import Strategy
from stagecut.planner.sharding.layers import saved_input_bytes
from stagecut.planner.sharding.operator_costs import OperatorCosts, operator_costs
from stagecut.planner.sharding.strategies import input_placements, strategies
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.pair_tables import returned_in
from stagecut.planner.sharding_search.wiring import OperatorNode, output_of

Allowed = Callable[[int, Operator], Sequence[Strategy]]
"""The strategies of an operator of the layer with that number among which the search may choose."""


def all_strategies(case: ShardingCase) -> Allowed:
    """Every legal strategy."""
    return lambda _, operator: strategies(operator, case.mesh.sizes, samples=case.micro_batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionCosts:
    """What options cost by themselves, arrays of shape (options,)."""

    seconds: Floats
    """Per iteration."""
    held_bytes: Floats
    """Weights, gradients, optimizer state and what is saved of a micro-batch, on each device."""
    working_bytes: Floats
    """More than that while the operator runs."""

    def chosen(self, keep: Bools) -> "OptionCosts":
        """Those of some of the options."""
        return OptionCosts(
            seconds=self.seconds[keep], held_bytes=self.held_bytes[keep], working_bytes=self.working_bytes[keep]
        )

    def __add__(self, other: "OptionCosts") -> "OptionCosts":
        """Of two nodes that choose together."""
        return OptionCosts(
            seconds=self.seconds + other.seconds,
            held_bytes=self.held_bytes + other.held_bytes,
            working_bytes=np.maximum(self.working_bytes, other.working_bytes),
        )


def return_costs(case: ShardingCase, number: int, options: Sequence[Strategy], seconds: Floats) -> OptionCosts:
    """What returning the output of a layer costs its maker in addition, given seconds per micro-batch.

    What the next layer keeps of it is held as it crosses the boundary.
    """
    tensor, behind = output_of(case.model.layers[number])[1], case.model.layers[number + 1 : number + 2]
    num_bytes = case.micro_batch * sum(map(saved_input_bytes, behind))
    return OptionCosts(
        seconds=case.num_microbatches * seconds,
        held_bytes=np.array([num_bytes / case.mesh.parts(returned_in(tensor, own)) for own in options]),
        working_bytes=np.zeros(len(options)),
    )


def own_costs(
    case: ShardingCase, node: OperatorNode, options: Sequence[Strategy], *, whole_s: float, fixed_s: float
) -> OptionCosts:
    """Costs of an operator under its strategies.

    `whole_s` are its seconds on one device in both directions, `fixed_s` those that nothing divides, both per
    micro-batch.
    """
    operator = operator_of(case.model, node)
    costs = [costs_of(case, operator, option) for option in options]
    loaded = [loaded_bytes(case, node, option) for option in options]
    seconds = [seconds_of(case, each, whole_s=whole_s, fixed_s=fixed_s) for each in costs]
    return OptionCosts(
        seconds=np.array(seconds),
        held_bytes=np.array([held_bytes(each) for each in costs]) + loaded,
        working_bytes=np.array([each.working_bytes for each in costs]),
    )


def costs_of(case: ShardingCase, operator: Operator, strategy: Strategy) -> OperatorCosts:
    """An operator on each device of the mesh."""
    return operator_costs(
        operator,
        strategy,
        case.mesh,
        samples=case.micro_batch,
        optimizer=case.optimizer,
        element_bytes=case.model.precision.num_bytes,
    )


def seconds_of(case: ShardingCase, costs: OperatorCosts, *, whole_s: float, fixed_s: float) -> float:
    """Seconds per iteration: num_microbatches x (compute + collectives of weights) + sync + update."""
    weights = costs.weights
    each_s = whole_s / costs.parts + fixed_s + weights.forward.seconds + weights.backward.seconds
    return case.num_microbatches * each_s + weights.sync.seconds + update_s(case, weights.num_updated)


def update_s(case: ShardingCase, num_updated: float) -> float:
    """Weights and state read and written, gradients read, at memory bandwidth."""
    optimizer = case.optimizer
    touched_bytes = 2 * (optimizer.weight_bytes + optimizer.state_bytes) + optimizer.gradient_bytes
    return num_updated * touched_bytes / case.device.memory_bandwidth_bytes_per_s


def held_bytes(costs: OperatorCosts) -> float:
    """Bytes that stay from the forward of an operator to its backward."""
    weights = costs.weights
    return weights.weight_bytes + weights.gradient_bytes + weights.optimizer_bytes + costs.saved_bytes


def loaded_bytes(case: ShardingCase, node: OperatorNode, strategy: Strategy) -> float:
    """What the first layer keeps of its input, on each device: it is loaded as the first operator takes it."""
    layer = case.model.layers[0]
    ports = ((index, port) for index, own in enumerate(operators_of(layer)) for port in own.inputs)
    first = next(((index, port) for index, port in ports if port.tensor == INPUT), None)
    if first is None or node != OperatorNode(0, first[0]):
        return 0.0
    return case.micro_batch * saved_input_bytes(layer) / case.mesh.parts(input_placements(first[1], strategy.splits))


def undominated(options: Sequence[Strategy], costs: OptionCosts) -> Bools:
    """Options for which no other with the same splits is at least as good in seconds and bytes.

    Splits alone decide what conversions cost, so an optimum is left. Of equal options the first stays.
    """
    by_splits: dict[tuple[str, ...], list[int]] = {}
    for index, option in enumerate(options):
        by_splits.setdefault(option.splits, []).append(index)
    table = np.column_stack([costs.seconds, costs.held_bytes, costs.working_bytes])
    keep = np.ones(len(options), dtype=np.bool_)
    for own, others in ((i, group) for group in by_splits.values() for i in group):
        for other in others:
            no_worse = bool((table[other] <= table[own]).all())
            better = bool((table[other] < table[own]).any()) or other < own
            if other != own and no_worse and better:
                keep[own] = False
    return keep


def operator_of(model: ModelProfile, node: OperatorNode) -> Operator:
    """The operator of a node."""
    return operators_of(model.layers[node.layer])[node.index]
