"""What the ranks of a sharded stage send is what the planner counts."""

import random
from collections.abc import Sequence
from dataclasses import replace
from math import prod

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from stagecut import executor
from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.layer_operators import operators_of
from stagecut.planner.core.model import Layer
from stagecut.planner.core.operators import INPUT, OUTPUT
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.strategy import StageSharding
from stagecut.planner.sharding.collectives import Collective, sent_bytes
from stagecut.planner.sharding.edges import TensorEnds, edge_costs
from stagecut.planner.sharding.layers import returned
from stagecut.planner.sharding.mesh import Mesh
from stagecut.planner.sharding.operator_costs import operator_costs
from stagecut.planner.sharding.placements import REPLICATE, Placements
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
)
from tests.executor import pool
from tests.executor.sharding.sharded_models import MODELS, mesh_of, plan_file, random_sharding, sharded

SAMPLES = 4
WIDER = 2
"""Ranks compute in float64, profiles are in fp32."""
Bytes = tuple[float, float, float]
"""Sent by a rank in a forward, in a backward, and once per iteration."""
COLLECTIVES = {
    "allreduce_": Collective.ALL_REDUCE,
    "_allgather_base_": Collective.ALL_GATHER,
    "_reduce_scatter_base_": Collective.REDUCE_SCATTER,
    "alltoall_base_": Collective.ALL_TO_ALL,
}


class Sent(TorchDispatchMode):
    """Counts the bytes of all collectives."""

    def __init__(self) -> None:
        super().__init__()
        self.num_bytes = 0.0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "c10d":
            tensors = [tensor for each in args[:2] for tensor in (each if isinstance(each, list) else [each])]
            sizes = [t.numel() * t.element_size() for t in tensors if isinstance(t, torch.Tensor)]
            objects = (each for each in args if isinstance(each, torch.ScriptObject))
            boxed = next(each for each in objects if each._type().name() == "ProcessGroup")
            size = torch.distributed.ProcessGroup.unbox(boxed).size()
            self.num_bytes += sent_bytes(COLLECTIVES[func._opname], size, max(sizes))
        return func(*args, **(kwargs or {}))


def counted(cases: list[tuple[str, Plan]]) -> list[Bytes]:
    """What one rank sends for one micro-batch."""
    torch.set_default_dtype(torch.float64)
    found = []
    for name, plan in cases:
        chain = replace(MODELS[name].modules(), ties=())  # one matrix cannot be divided in two ways
        inputs, _ = chain.batch(SAMPLES, torch.Generator().manual_seed(3))
        pipeline = executor.load(plan_file(plan, MODELS[name].profile), chain)
        division = pipeline.stages[0].division
        division.refresh()
        state = (inputs,) if isinstance(inputs, torch.Tensor) else inputs
        with Sent() as forward:
            for layer in division.layers:
                state = layer(state)
        with Sent() as backward:
            torch.autograd.backward(state, [torch.ones_like(tensor) for tensor in state])
        with Sent() as sync:
            division.sum_gradients(lambda parts: None)
            division.refresh()
        found.append((forward.num_bytes, backward.num_bytes, sync.num_bytes))
    return found


def modelled(layers: Sequence[Layer], sharding: StageSharding) -> Bytes:
    """The same by the planner's formulas."""
    mesh = mesh_of(sharding.mesh)
    before: Placements = (REPLICATE,) * len(sharding.mesh)
    totals = [0.0, 0.0, 0.0]
    for index, layer in enumerate(layers):
        *own, before = _layer(layer, sharding.layers[index], mesh, before, is_first=index == 0)
        totals = [total + each for total, each in zip(totals, own, strict=True)]
    return tuple(WIDER * total for total in totals)


def _layer(layer, chosen, mesh: Mesh, before: Placements, *, is_first: bool):
    made = {INPUT: (before, before, layer.saved_input_bytes, True)}
    forward = backward = sync = 0.0
    optimizer = standard_optimizer("adamw", Precision.FP32)
    for operator, strategy in zip(operators_of(layer), chosen.operators, strict=True):
        for port in operator.inputs:
            if is_first and port.tensor == INPUT:
                continue  # every rank has it, and it has no gradient
            where, gradient, num_bytes, saved = made[port.tensor]
            ends = TensorEnds(
                made=where,
                made_gradient=gradient,
                taken=input_placements(port, strategy.splits),
                taken_gradient=input_gradient_placements(port, strategy.splits),
            )
            # sums and the choice of a token need their inputs no more; the loss is not part of this test
            needed = saved and operator.name not in ("residual", "first token", "loss")
            edge = edge_costs(mesh, ends, num_bytes=WIDER * num_bytes * SAMPLES, saved=needed)
            forward += edge.forward.sent_bytes / WIDER
            backward += (edge.backward.sent_bytes + edge.again.sent_bytes) / WIDER
        weights = operator_costs(
            operator, strategy, mesh, samples=SAMPLES, optimizer=optimizer, element_bytes=4
        ).weights
        forward += weights.forward.sent_bytes
        backward += weights.backward.sent_bytes
        sync += weights.sync.sent_bytes
        for tensor in operator.outputs:
            made[tensor.name] = (
                output_placements(tensor, strategy.splits),
                output_gradient_placements(tensor, strategy.splits),
                tensor.num_bytes,
                tensor.saved,
            )
    where, gradient, num_bytes, _ = made[OUTPUT]
    after = returned(where)
    ends = TensorEnds(made=where, made_gradient=gradient, taken=after, taken_gradient=after)
    if operators_of(layer)[-1].kind != "loss":
        edge = edge_costs(mesh, ends, num_bytes=WIDER * num_bytes * SAMPLES, saved=False)
        forward += edge.forward.sent_bytes / WIDER
        backward += edge.backward.sent_bytes / WIDER
    return forward, backward, sync, after


@pytest.mark.parametrize(("sizes", "num_cases"), [((2,), 6), ((2, 2), 4)])
def test_counted_bytes_are_modelled_bytes(sizes: tuple[int, ...], num_cases: int) -> None:
    """Forward, backward with what is gathered again, and sums of gradients, of any strategies."""
    cases = [one_stage(name, sizes, seed) for name in ("llama", "gpt") for seed in range(num_cases)]
    for found in pool.run(counted, cases, world_size=prod(sizes)):
        for (name, plan), own in zip(cases, found, strict=True):
            sharding = plan.stages[0].sharding
            assert own == pytest.approx(modelled(MODELS[name].profile.layers, sharding)), sharding


def one_stage(name: str, sizes: tuple[int, ...], seed: int) -> tuple[str, Plan]:
    """A single stage with random strategies."""
    layers = MODELS[name].profile.layers
    plan = plan_of((0, len(layers)), micro_batch=SAMPLES, num_microbatches=1, tensor_parallel=(prod(sizes),))
    return name, sharded(plan, {0: random_sharding(random.Random(seed), layers, sizes, samples=SAMPLES)})
