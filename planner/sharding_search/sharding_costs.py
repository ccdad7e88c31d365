"""What a sharding costs, computed anew from operators and edges."""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.operators.operators import Tensor
from stagecut.planner.cost.operator_times import layer_works
from stagecut.planner.sharding.edges import EdgeCosts, TensorEnds, edge_costs
from stagecut.planner.sharding.layers import saved_input_bytes
from stagecut.planner.sharding.lower_bounds import least_iteration_bytes
from stagecut.planner.sharding.operator_costs import NO_TRAFFIC, Traffic, WeightCosts
from stagecut.planner.sharding.placements import Placements
from stagecut.planner.sharding_search.case import ShardingCase
from stagecut.planner.sharding_search.options import costs_of, loaded_bytes, update_s
from stagecut.planner.sharding_search.pair_tables import End, left, made, returned_in, taken
from stagecut.planner.sharding_search.sharding_graph import Sharding
from stagecut.planner.sharding_search.wiring import OperatorNode, maker_of, wires


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingCosts:
    """Seconds and bytes of one iteration on each device."""

    compute_s: float
    collectives_s: float
    """Conversions, and weights gathered and gradients scattered in every micro-batch."""
    sync_s: float
    update_s: float
    sent_bytes: float
    weight_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    saved_bytes: float
    """Of a micro-batch."""
    working_bytes: float
    """The largest of any operator."""

    @property
    def iteration_s(self) -> float:
        """Seconds of an iteration."""
        return self.compute_s + self.collectives_s + self.sync_s + self.update_s

    @property
    def memory_bytes(self) -> float:
        """At the end of the last forward, with the working memory of any operator on top."""
        held = self.weight_bytes + self.gradient_bytes + self.optimizer_bytes + self.saved_bytes
        return held + self.working_bytes


def sharding_costs(case: ShardingCase, sharding: Sharding) -> ShardingCosts:
    """Costs of an iteration; infinite seconds where there is no way between two placements."""
    compute_s, saved_bytes, working_bytes = 0.0, 0.0, 0.0
    weights, all_times = WeightCosts(), layer_works(case.model, case.device, case.micro_batch)
    for number, (layer, own) in enumerate(zip(case.model.layers, sharding.layers, strict=True)):
        times = all_times[number]
        compute_s += 2 * times.launch_s
        for index, (operator, strategy) in enumerate(zip(operators_of(layer), own.operators, strict=True)):
            costs = costs_of(case, operator, strategy)
            compute_s += (times.forward_s[index] + times.backward_s[index]) / costs.parts
            saved_bytes += costs.saved_bytes + loaded_bytes(case, OperatorNode(number, index), strategy)
            working_bytes = max(working_bytes, costs.working_bytes)
            weights = weights + costs.weights
    for layer, state in zip(case.model.layers[1:], states_of(case.model, sharding)[:-1], strict=True):
        saved_bytes += case.micro_batch * saved_input_bytes(layer) / case.mesh.parts(state)
    each = weights.forward + weights.backward
    again_bytes = 0.0
    for edge in _edges(case, sharding):
        each = each + edge.forward + edge.backward
        again_bytes += edge.again.sent_bytes
    return ShardingCosts(
        compute_s=case.num_microbatches * compute_s,
        collectives_s=case.num_microbatches * each.seconds,
        sync_s=weights.sync.seconds,
        update_s=update_s(case, weights.num_updated),
        sent_bytes=case.num_microbatches * (each.sent_bytes + again_bytes) + weights.sync.sent_bytes,
        weight_bytes=weights.weight_bytes,
        gradient_bytes=weights.gradient_bytes,
        optimizer_bytes=weights.optimizer_bytes,
        saved_bytes=saved_bytes,
        working_bytes=working_bytes,
    )


def least_sent_bytes(case: ShardingCase) -> float | None:
    """Communication lower bound: bytes that some device sends per iteration if each computes an equal part.

    Only products count, so it says little, and is None, where they are less than half of the FLOPs.
    """
    operators = [operator for layer in case.model.layers for operator in operators_of(layer)]
    products = sum(operator.forward_flops for operator in operators if operator.kind == "linear")
    if 2 * products < sum(operator.forward_flops for operator in operators):
        return None
    return least_iteration_bytes(
        operators,
        global_batch=case.micro_batch * case.num_microbatches,
        num_devices=case.mesh.num_devices,
        element_bytes=case.model.precision.num_bytes,
    )


def states_of(model: ModelProfile, sharding: Sharding) -> tuple[Placements, ...]:
    """The placements in which each layer returns its output."""
    makers = (maker_of(model, number) for number in range(model.num_layers))
    return tuple(returned_in(tensor, sharding.strategy(node)) for node, tensor in makers)


def _edges(case: ShardingCase, sharding: Sharding) -> Iterator[EdgeCosts]:
    model = case.model
    for wire in wires(model):
        ends = made(wire, sharding.strategy(wire.source)), taken(wire, sharding.strategy(wire.target))
        yield _edge(case, *ends, wire.tensor)
    for number, state in enumerate(states_of(model, sharding)):
        node, tensor = maker_of(model, number)
        yield _edge(case, left(tensor, sharding.strategy(node)), (state, state), tensor)


def _edge(case: ShardingCase, source: End, target: End, tensor: Tensor) -> EdgeCosts:
    ends = TensorEnds(made=source[0], made_gradient=source[1], taken=target[0], taken_gradient=target[1])
    num_bytes = case.micro_batch * tensor.num_bytes
    found = edge_costs(case.mesh, ends, num_bytes=num_bytes, saved=tensor.saved)
    nowhere = Traffic(seconds=float("inf"))
    return found or EdgeCosts(forward=nowhere, backward=nowhere, again=NO_TRAFFIC)
