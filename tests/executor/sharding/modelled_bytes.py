"""What the planner counts for the ranks of a sharded stage, added up from its formulas."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from stagecut.models.modules.operators import OperatorModule
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.layer_graphs.layer_operators import operators_of
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, Operator, Weight
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP, LayerStrategy, Strategy, WeightStorage
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.sharding.edges import EdgeCosts, TensorEnds, edge_costs
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.operator_costs import WeightCosts, weight_costs
from stagecut.planner.sharding.placements import PARTIAL, REPLICATE, Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    weight_gradient_placements,
    weight_placements,
)
from tests.executor.sharding.sent_bytes import Bytes
from tests.executor.sharding.sharded_models import MODELS, mesh_of

WIDER = 2
"""Ranks compute in float64, profiles are in fp32."""
ELEMENT_BYTES = 4
OPTIMIZER = standard_optimizer("adamw", Precision.FP32)


def modelled(name: str, plan: Plan, index: int) -> Bytes:
    """Of a micro-batch of one stage, and once per iteration.

    What is not the planner's is named: what is gathered at the ends of a stage, and the weights of tokens that travel
    to where experts are combined. Under recomputation, the backward begins with the forward again and keeps what that
    has gathered.
    """
    stage, model = plan.stages[index], MODELS[name]
    mesh, samples = mesh_of(stage.sharding.mesh), plan.micro_batch // stage.replicas
    state: Placements = (REPLICATE,) * len(mesh.sizes)
    edges: list[EdgeCosts] = []
    weights = WeightCosts()
    profile, modules = model.profile, model.modules()
    for number, strategy in zip(range(stage.start, stage.stop), stage.sharding.layers, strict=True):
        layer = _Layer(
            operators=operators_of(profile.layers[number]),
            modules=modules.layers[number].operators or {},
            strategy=strategy,
            mesh=mesh,
            samples=samples,
            before=state,
            input_bytes=profile.layers[number - 1].output_bytes if number else 0.0,
        )
        edges += layer.edges()
        weights = sum(layer.weights(), weights)
        state = layer.after
    if stage.stop < profile.num_layers:
        whole = (REPLICATE,) * len(mesh.sizes)
        ends = TensorEnds(made=state, made_gradient=state, taken=whole, taken_gradient=whole)
        num_bytes = WIDER * samples * profile.layers[stage.stop - 1].output_bytes
        last = edge_costs(mesh, ends, num_bytes=num_bytes, saved=False)
    else:
        last = None
    forward = sum(edge.forward.sent_bytes for edge in edges) + WIDER * weights.forward.sent_bytes
    backward = sum(edge.backward.sent_bytes for edge in edges) + WIDER * weights.backward.sent_bytes
    if stage.recompute:
        backward += forward - WIDER * weights.forward.sent_bytes
    else:
        backward += sum(edge.again.sent_bytes for edge in edges)
    if last is not None:
        forward, backward = forward + last.forward.sent_bytes, backward + last.backward.sent_bytes
    return forward, backward, WIDER * weights.sync.sent_bytes


@dataclass(frozen=True, kw_only=True)
class _Made:
    placements: Placements
    gradients: Placements
    num_bytes: float
    saved: bool


@dataclass(frozen=True, kw_only=True)
class _Layer:
    operators: tuple[Operator, ...]
    modules: dict[str, OperatorModule]
    strategy: LayerStrategy
    mesh: Mesh
    samples: int
    before: Placements
    input_bytes: float

    @property
    def made(self) -> dict[str, _Made]:
        found = {INPUT: _Made(placements=self.before, gradients=self.before, num_bytes=self.input_bytes, saved=True)}
        for operator, strategy in self._pairs():
            for tensor in operator.outputs:
                found[tensor.name] = _Made(
                    placements=output_placements(tensor, strategy.splits),
                    gradients=output_gradient_placements(tensor, strategy.splits),
                    num_bytes=tensor.num_bytes,
                    saved=tensor.saved,
                )
        return found

    @property
    def after(self) -> Placements:
        return returned(self.made[OUTPUT].placements)

    def edges(self) -> Iterator[EdgeCosts]:
        made = self.made
        for operator, strategy in self._pairs():
            splits = strategy.splits
            for port in operator.inputs:
                own = replace(made[port.tensor], saved=made[port.tensor].saved and operator.needs_inputs)
                yield self._edge(own, input_placements(port, splits), input_gradient_placements(port, splits))
            for port in self.modules[operator.name].also if operator.name in self.modules else ():
                own = replace(made[port.tensor], saved=False)
                yield self._edge(own, *_weights_of_tokens(port, splits))
        if self.operators[-1].kind != "loss":
            yield self._edge(replace(made[OUTPUT], saved=False), self.after, self.after)

    def weights(self) -> Iterator[WeightCosts]:
        for operator, strategy in self._pairs():
            for weight in operator.weights:
                held = _as_held(weight, strategy, self.mesh)
                yield weight_costs(*held, self.mesh, optimizer=OPTIMIZER, element_bytes=ELEMENT_BYTES)

    def _pairs(self) -> Iterator[tuple[Operator, Strategy]]:
        return zip(self.operators, self.strategy.operators, strict=True)

    def _edge(self, made: _Made, taken: Placements, gradient: Placements) -> EdgeCosts:
        ends = TensorEnds(made=made.placements, made_gradient=made.gradients, taken=taken, taken_gradient=gradient)
        costs = edge_costs(self.mesh, ends, num_bytes=WIDER * self.samples * made.num_bytes, saved=made.saved)
        assert costs is not None
        return costs


def _weights_of_tokens(port, splits: tuple[str, ...]) -> tuple[Placements, Placements]:
    """Of what goes to an operator besides partial sums: each device needs all of it, and has a part of its gradient."""
    whole = tuple(WHOLE_LOOP if split == PARTIAL_SUMS else split for split in splits)
    gradients = zip(input_gradient_placements(port, whole), splits, strict=True)
    summed = tuple(PARTIAL if split == PARTIAL_SUMS else gradient for gradient, split in gradients)
    return input_placements(port, whole), summed


def _as_held(weight: Weight, strategy: Strategy, mesh: Mesh) -> tuple[Weight, Strategy]:
    """A weight that cannot be divided evenly is held whole, and its gradient filled up with zeros."""
    gradients = weight_gradient_placements(weight, strategy.splits)
    shards = prod(size for size, own in zip(mesh.sizes, gradients, strict=True) if own is PARTIAL)
    parts = mesh.parts(weight_placements(weight, strategy.splits))
    num = round(weight.num_bytes / ELEMENT_BYTES / parts)
    if num % shards == 0:
        return weight, strategy
    filled = num + -num % shards
    return (
        replace(weight, num_bytes=float(ELEMENT_BYTES * filled * parts)),
        replace(strategy, storage=WeightStorage.REPLICATED),
    )
