"""Tensor and sequence parallelism as strategies of operators sends and keeps what the layers' own counts say."""

import pytest

from stagecut.models.catalogue import build_model
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.operators.operators import INPUT, OUTPUT
from stagecut.planner.core.operators.strategy import Strategy
from stagecut.planner.core.precision import Precision
from stagecut.planner.sharding.edges import TensorEnds, edge_costs
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.operator_costs import NO_TRAFFIC, operator_costs
from stagecut.planner.sharding.placements import Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
)

DEGREE, SAMPLES = 4, 2
MESH = Mesh(axes=(MeshAxis(size=DEGREE, link=Link(bandwidth_bytes_per_s=1.0)),))
BETWEEN_LAYERS = (Shard(1),)
"""Of (sample, token, hidden): by tokens."""
DIVIDED = {
    "qkv": "head",
    "attention": "head",
    "project": "head",
    "up": "width",
    "gate and up": "width",
    "down": "width",
    "combine": "+",
    "tokens": "vocabulary",
    "loss": "vocabulary",
}
"""What is not named here is divided by tokens."""


def splits_of(operator, layer):
    if operator.name == "activation" and layer.kind != "head":
        return ("width",)
    if operator.name == "project" and layer.kind == "head":
        return ("vocabulary",)
    return (DIVIDED.get(operator.name, "token"),)


def traffic_of(layer, *, input_bytes):
    """Collectives of a layer's forward and backward."""
    made = {INPUT: (BETWEEN_LAYERS, BETWEEN_LAYERS, input_bytes)}
    forward = backward = NO_TRAFFIC
    for operator in layer.operators:
        splits = splits_of(operator, layer)
        taken = [
            (own.tensor, input_placements(own, splits), input_gradient_placements(own, splits))
            for own in operator.inputs
        ]
        for tensor in operator.outputs:
            made[tensor.name] = (
                output_placements(tensor, splits),
                output_gradient_placements(tensor, splits),
                tensor.num_bytes,
            )
        for name, placements, gradient in taken:
            costs = conversion_of(made[name], placements, gradient)
            forward, backward = forward + costs.forward, backward + costs.backward
    if layer.output_bytes:
        costs = conversion_of(made[OUTPUT], BETWEEN_LAYERS, BETWEEN_LAYERS)
        forward, backward = forward + costs.forward, backward + costs.backward
    return forward, backward


def conversion_of(source, placements, gradient):
    made, made_gradient, num_bytes = source
    ends = TensorEnds(made=made, made_gradient=made_gradient, taken=placements, taken_gradient=gradient)
    return edge_costs(MESH, ends, num_bytes=SAMPLES * num_bytes, saved=False)


def kinds_of_layers():
    """By name, one layer of each kind with the bytes of its input."""
    found = {}
    for model in ("gpt2-345m", "llama3-8b", "mixtral-8x7b"):
        before = 0.0
        for layer in build_model(model).layers:
            found.setdefault(f"{model} {layer.kind}", (layer, before))
            before = layer.output_bytes
    return found


IDS, LAYERS = list(kinds_of_layers()), list(kinds_of_layers().values())


@pytest.mark.parametrize(("layer", "input_bytes"), LAYERS, ids=IDS)
def test_each_direction_sends_the_layers_all_reduce(layer, input_bytes):
    """A ring sends 2 (p - 1) / p of it, at 1 byte/s.

    Experts gather what is dispatched, two rows for each token of the input: 2 + 1 in place of 1 + 1.
    """
    sent = 2 * (DEGREE - 1) / DEGREE * SAMPLES * layer.tensor_parallel_bytes
    for way in traffic_of(layer, input_bytes=input_bytes):
        assert way.sent_bytes == pytest.approx(sent * 1.5 if layer.kind == "experts" else sent)
        assert way.seconds == pytest.approx(way.sent_bytes)


@pytest.mark.parametrize("layer", [layer for layer, _ in LAYERS], ids=IDS)
def test_each_device_keeps_its_part_of_the_weights(layer):
    """Norms, positions and biases behind a sum are whole on every device: few of the weights."""
    held = sum(own.weights.weight_bytes for own in costs_of(layer))
    whole = layer.params_bytes + layer.shared_params_bytes
    assert whole / DEGREE <= held <= whole * (1 / DEGREE + 0.03)


@pytest.mark.parametrize("layer", [layer for layer, _ in LAYERS], ids=IDS)
def test_each_device_keeps_its_part_of_the_activations(layer):
    """But all labels, and partial sums of what experts leave."""
    saved = sum(own.saved_bytes for own in costs_of(layer))
    tensors = {own.name: own.num_bytes for part in layer.operators for own in part.outputs if own.saved}
    whole = sum(tensors.pop(name, 0.0) for name in ("labels", "results"))
    assert saved == pytest.approx(SAMPLES * (sum(tensors.values()) / DEGREE + whole))


def costs_of(layer):
    optimizer = standard_optimizer("adamw", Precision.FP16)
    return [
        operator_costs(
            own,
            Strategy(splits=splits_of(own, layer)),
            MESH,
            samples=SAMPLES,
            optimizer=optimizer,
            element_bytes=Precision.FP16.num_bytes,
        )
        for own in layer.operators
    ]
