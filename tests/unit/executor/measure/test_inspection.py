"""Bytes and operations of layers against counts by hand; numbers of 4 bytes throughout."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from stagecut.executor.measure.inspection import inspect_chain  # noqa: E402
from stagecut.executor.measure.samples import Samples  # noqa: E402
from stagecut.executor.play.build import chain_of  # noqa: E402
from stagecut.models.modules.module_chain import LayerModule, ModuleChain, Tie  # noqa: E402
from stagecut.planner.core.messages.errors import BadInputError  # noqa: E402
from stagecut.planner.core.model import SkipEdge  # noqa: E402


def facts_of(layers, *, width=4, loss=None, autocast=None):
    chain = layers if isinstance(layers, ModuleChain) else chain_of(layers)
    if loss is not None:
        chain = ModuleChain(name=chain.name, layers=chain.layers, ties=chain.ties, loss=loss, batch=None)
    samples = Samples(state=(torch.randn(4, width),), targets=torch.randint(2, (4,)))
    return inspect_chain(chain, samples, autocast=autocast)


class Sending(nn.Linear):
    """Hands on its output and, by the side, a tensor of its own and all that was sent before."""

    def forward(self, state, *sent):
        output = super().forward(state)
        return output, *sent, torch.tanh(output)


class Passing(nn.Linear):
    """Uses the first tensor of the state only."""

    def forward(self, state, *sent):
        return super().forward(state), *sent


class Consuming(nn.Linear):
    """Uses everything."""

    def forward(self, state, *sent):
        return super().forward(torch.cat((state, *sent), 1))


def test_a_linear_chain_saves_the_input_of_every_layer():
    """4 -> 8 -> relu -> 2: inputs of 4, 8 and 8 numbers; weights and the output of the relu are not counted."""
    layers = facts_of([nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]).layers
    assert [layer.saved_bytes for layer in layers] == [16.0, 32.0, 32.0]
    assert [layer.output_bytes for layer in layers] == [32.0, 32.0, 0.0]


def test_what_a_layer_keeps_inside_is_saved_once():
    """Input of 4, output of the first linear of 8 (saved by tanh and the second linear as tanh's result) numbers."""
    (layer,) = facts_of([nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))]).layers
    assert layer.saved_bytes == 4 * (4 + 8)


def test_parameters_and_operations_are_counted():
    """4 x 8 + 8 parameters; 2 x 4 x 8 operations per sample."""
    layer = facts_of([nn.Linear(4, 8)]).layers[0]
    assert layer.num_params == 40
    assert layer.forward_flops == 64
    assert layer.kind == "Linear"


def test_a_backward_works_on_gradients_of_activations_not_of_weights():
    """The gradient of 8 outputs, which are given, and of 8 inputs; the gradient of the 8 x 8 weight does not grow."""
    layer = facts_of([nn.Linear(4, 8), nn.Linear(8, 8, bias=False)]).layers[1]
    assert layer.working_bytes == 4 * (8 + 8)


def test_fused_attention_counts_both_products():
    """Two products of 6 x 6 x 8, for two heads: 2 x 2 x 2 x 6 x 6 x 8 operations."""

    class Attention(nn.Module):
        def forward(self, state):
            heads = state.reshape(len(state), 2, 6, 8)
            return nn.functional.scaled_dot_product_attention(heads, heads, heads, is_causal=True)

    assert facts_of([Attention()], width=96).layers[0].forward_flops == 2 * 2 * 2 * 6 * 6 * 8


def test_products_of_experts_are_counted():
    """A row of 8 per sample is multiplied by one of two matrices of 8 x 16: 2 * 8 * 16 operations."""

    class Experts(nn.Module):
        def __init__(self):
            super().__init__()
            self.matrices = nn.Parameter(torch.randn(2, 8, 16))

        def forward(self, rows):
            ends = torch.tensor([len(rows) // 2, len(rows)], dtype=torch.int32)
            return nn.functional.grouped_mm(rows, self.matrices, offs=ends)

    assert facts_of([Experts()], width=8).layers[0].forward_flops == 2 * 8 * 16


def test_a_tensor_that_passes_by_layers_is_a_skip_edge():
    """Layer 0 sends 8 numbers to layer 3; what it hands to layer 1 is 8 numbers too, not counted twice."""
    facts = facts_of([Sending(4, 8), Passing(8, 8), Passing(8, 8), Consuming(16, 2)])
    assert facts.skip_edges == (SkipEdge(source=0, target=3, num_bytes=32.0),)
    assert [layer.output_bytes for layer in facts.layers[:3]] == [32.0, 32.0, 32.0]


def test_a_tensor_that_passes_by_is_saved_by_the_layer_that_needs_it():
    """Layer 0: its input of 4 and, for tanh, the 8 numbers that it sends; layer 2: its input of 8 and the copy of 16.

    What layer 0 hands to layer 1 is counted there.
    """
    facts = facts_of([Sending(4, 8), Passing(8, 8), Consuming(16, 2)])
    assert [layer.saved_bytes for layer in facts.layers] == [4 * (4 + 8), 4 * 8, 4 * (8 + 16)]


def test_gradients_of_what_passes_by_are_no_work_of_a_layer():
    """The gradient of 8 outputs and of 8 inputs, with or without a tensor beside them."""
    beside = facts_of([Sending(4, 8), Passing(8, 8), Consuming(16, 2)]).layers[1]
    alone = facts_of([nn.Linear(4, 8), nn.Linear(8, 8)]).layers[1]
    assert beside.working_bytes == alone.working_bytes == 4 * (8 + 8)


def test_the_loss_belongs_to_the_last_layer():
    """The last layer saves its input of 4 numbers, 2 log-probabilities and a target of 8 bytes; it sends nothing on."""
    (layer,) = facts_of([nn.Linear(4, 2)], loss=nn.functional.cross_entropy).layers
    assert layer.saved_bytes == 4 * (4 + 2) + 8
    assert layer.output_bytes == 0.0


def test_tied_copies_are_counted_apart():
    layers = tuple(LayerModule(name=name, build=lambda: nn.Linear(4, 4)) for name in ("first", "second"))
    ties = (Tie(owner=(0, "weight"), copy=(1, "weight")),)
    first, second = facts_of(ModuleChain(name="tied", layers=layers, ties=ties, loss=None, batch=None)).layers
    assert (first.num_params, first.num_shared_params) == (20, 0)
    assert (second.num_params, second.num_shared_params) == (4, 16)


def test_autocast_hands_on_half_the_bytes_and_keeps_no_copies_of_weights():
    """8 numbers of 2 bytes; saved: the input as autocast has cast it beside the original that is always counted."""
    layer = facts_of([nn.Linear(4, 8), nn.Linear(8, 2)], autocast=torch.bfloat16).layers[0]
    assert layer.output_bytes == 16.0
    assert layer.saved_bytes == 4 * (4 + 2)


def test_a_layer_that_does_not_fit_its_input_is_named():
    with pytest.raises(BadInputError, match=r"layer 'layer1' fails on an input of shape \(2, 8\)"):
        facts_of([nn.Linear(4, 8), nn.Linear(9, 2)])
