"""What known ways of dividing a layer send, by the operators of the catalogue."""

import pytest

from stagecut.models import build_model
from stagecut.planner.core.cluster import Link
from stagecut.planner.core.operators.operators import INPUT, OUTPUT
from stagecut.planner.core.operators.strategy import PARTIAL_SUMS, WHOLE_LOOP
from stagecut.planner.sharding.edges import TensorEnds, edge_costs
from stagecut.planner.sharding.mesh import Mesh, MeshAxis
from stagecut.planner.sharding.placements import Shard
from stagecut.planner.sharding.strategies import (
    input_gradient_placements,
    input_placements,
    output_gradient_placements,
    output_placements,
    strategies,
)

SIZE = 4
MESH = Mesh(axes=(MeshAxis(size=SIZE, link=Link(bandwidth_bytes_per_s=1e9, latency_s=0.0)),))
TOKENS = (Shard(1),)
"""The state at both ends of a layer: each device has a part of the tokens."""


def sent_bytes(model, name, dims, *, otherwise):
    """Bytes per sample that each device sends forward and backward, with these operators divided along a dimension."""
    layer = next(layer for layer in build_model(model).layers if layer.name == name)
    state_bytes = layer.saved_input_bytes
    made = {INPUT: (TOKENS, TOKENS, state_bytes)}
    forward = backward = 0.0
    for operator in layer.operators:
        split = (dims.get(operator.name, otherwise),)
        assert split in {each.splits for each in strategies(operator, (SIZE,), samples=SIZE)}, operator.name
        taken = [
            (port, input_placements(port, split), input_gradient_placements(port, split)) for port in operator.inputs
        ]
        for port, there, back in taken:
            costs = costs_between(made[port.tensor], there, back)
            forward, backward = forward + costs.forward.sent_bytes, backward + costs.backward.sent_bytes
        for tensor in operator.outputs:
            placements = output_placements(tensor, split), output_gradient_placements(tensor, split)
            made[tensor.name] = (*placements, tensor.num_bytes)
    costs = costs_between(made[OUTPUT], TOKENS, TOKENS)
    return forward + costs.forward.sent_bytes, backward + costs.backward.sent_bytes


def costs_between(made, taken, taken_gradient):
    placements, gradient, num_bytes = made
    ends = TensorEnds(made=placements, made_gradient=gradient, taken=taken, taken_gradient=taken_gradient)
    costs = edge_costs(MESH, ends, num_bytes=num_bytes, saved=False)
    assert costs is not None
    return costs


TENSOR = {
    "attention": dict.fromkeys(("qkv", "attention", "project"), "head"),
    "feed-forward": dict.fromkeys(("up", "gate and up", "activation", "down"), "width"),
    "experts": {
        **dict.fromkeys(("gate and up", "activation", "down"), "width"),
        "dispatch": WHOLE_LOOP,
        "combine": PARTIAL_SUMS,
    },
}


@pytest.mark.parametrize(
    ("model", "part"),
    [
        ("gpt2-345m", "attention"),
        ("gpt2-345m", "feed-forward"),
        ("bert-large", "attention"),
        ("llama3-8b", "attention"),
        ("llama3-8b", "feed-forward"),
    ],
)
def test_tensor_parallelism_with_sequences_sends_an_all_reduce(model, part):
    """An all-gather before, a reduce-scatter after: 2 (p - 1) / p of what the profile says is all-reduced."""
    layer = next(layer for layer in build_model(model).layers if layer.name == f"block0.{part}")
    sent = sent_bytes(model, layer.name, TENSOR[part], otherwise="token")
    expected = 2 * (SIZE - 1) / SIZE * layer.tensor_parallel_bytes
    assert sent == (expected, expected)


def test_experts_divided_by_width_combine_partial_sums():
    """Forward an all-gather and a reduce-scatter, as above, and the probabilities: 8 where a token has 4096 elements.

    Backward the gradients of both copies of each token are summed before they return to it: an all-reduce of
    4096 x 2 x 4096 elements, and an all-gather of half as many for the other end.
    """
    forward, backward = sent_bytes("mixtral-8x7b", "block0.experts", TENSOR["experts"], otherwise="token")
    state = 4096 * 4096 * 2
    assert forward == 3 / 4 * (2 * state + 4096 * 8 * 2)
    assert backward == 3 / 4 * (2 * 2 * state + state)


def test_context_parallelism_gathers_keys_and_values():
    """Llama 3 8B: 8192 tokens x 2 x 1024 elements of 2 bytes, of which each device sends 3 / 4; the rest is local."""
    expected = 3 / 4 * 8192 * 2 * 1024 * 2
    assert sent_bytes("llama3-8b", "block0.attention", {}, otherwise="token") == (expected, expected)
    assert sent_bytes("llama3-8b", "block0.feed-forward", {}, otherwise="token") == (0.0, 0.0)


def test_expert_parallelism_sends_tokens_there_and_back():
    """4096 tokens with 2 experts each x 4096 elements of 2 bytes: each device sends 3 / 4 of its quarter, twice."""
    products = dict.fromkeys(("gate and up", "activation", "down"), "expert")
    expected = 2 * 3 / 4 * (4096 * 2 * 4096 * 2 / 4)
    assert sent_bytes("mixtral-8x7b", "block0.experts", products, otherwise="token") == (expected, expected)
