"""What layers keep for their backward, measured on the CPU, against the analytic profile."""

import pytest
import torch

from stagecut.models import build_model, build_modules
from stagecut.models.families.mixtral import MixtralShape, mixtral
from stagecut.models.families.unet import UnetShape, unet
from stagecut.planner.core.precision import Precision

NUM_SAMPLES = 2


def as_state(value):
    return value if isinstance(value, tuple) else (value,)


def kept_bytes(chain):
    """Bytes per sample that each layer's backward holds: memory of saved tensors, weights and its output aside."""
    inputs, targets = chain.batch(NUM_SAMPLES, torch.Generator().manual_seed(0))
    state, kept = as_state(inputs), []
    for index, layer in enumerate(chain.layers):
        module, memory = layer.build(), {}
        state = tuple(each.detach().requires_grad_(index > 0 and each.is_floating_point()) for each in state)
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor, into=memory: note(tensor, into), lambda it: it):
            state = as_state(module(*state))
            if index == len(chain.layers) - 1 and "synthetic" not in chain.name:
                chain.loss(state if len(state) > 1 else state[0], targets)
        for held in (*module.parameters(), *module.buffers(), state[0]):
            memory.pop(held.untyped_storage().data_ptr(), None)
        kept.append(sum(memory.values()) / NUM_SAMPLES)
    return kept


def note(tensor, memory):
    memory[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


def ratios(chain, profile):
    """Measured over analytic bytes by kind of layer."""
    rows = zip(kept_bytes(chain), profile.layers, strict=True)
    found = {}
    for measured, layer in rows:
        found.setdefault(layer.kind, []).append(measured / layer.saved_bytes)
    return found


@pytest.mark.parametrize("name", ["gpt-mini", "bert-mini", "vgg16-cifar", "synthetic:3:6"])
def test_layers_save_what_the_profile_counts(name):
    """Within 3 %: on top come mean and deviation of each norm, 8 bytes a token; one row of a random layer.

    GPT's embedding saves the places of the positions too, once for all samples.
    """
    found = ratios(build_modules(name), build_model(name, precision=Precision.FP32))
    embeddings = found.pop("embedding", [1.0])
    assert embeddings == pytest.approx([1.0], rel=0.6)
    for kind, values in found.items():
        assert values == pytest.approx([1.0] * len(values), rel=0.03), kind


def test_llama_saves_more_on_a_cpu_by_known_amounts():
    """The CPU has neither a fused RMSNorm nor grouped queries: a norm keeps its result before the weight, `s h`, and
    keys and values are repeated for every head, `2 s (h - k)`; so 1 + (h + 2 h - 2 k) / (4 h + 2 k) with k = h / 2 is
    1.4, and 1 + h / (2 h + 4 f) with f = 3 h is 1.07; angles and the norm's deviation come on top.
    """
    found = ratios(build_modules("llama-mini"), build_model("llama-mini", precision=Precision.FP32))
    assert found["attention"] == pytest.approx([1.42] * 4, abs=0.03)
    assert found["feed-forward"] == pytest.approx([1.07] * 4, abs=0.01)
    assert found["head"] == pytest.approx([1.06], abs=0.01)


def test_experts_save_the_tensors_of_their_tokens():
    """The norm's result before the weight comes on top, and the places of every expert's tokens: within a fifth."""
    from stagecut.models.modules.mixtral import mixtral_modules

    shape = MixtralShape(blocks=1, hidden=128, heads=4, key_heads=4, width=256, vocabulary=64)
    expected = mixtral(shape, 64).in_precision(Precision.FP32, name="small", sequence_length=64)
    found = ratios(mixtral_modules("small", shape, tokens=64), expected)
    assert found["experts"] == pytest.approx([1.1], abs=0.1)


def test_convolutions_of_a_unet_save_what_the_profile_counts():
    """Exactly but for the skip edge's places of maxima; a tensor that leaves as a skip edge counts where it is made."""
    from stagecut.models.modules.unet import unet_modules

    shape = UnetShape(side=32, widths=(8, 16))
    expected = unet(shape).in_precision(Precision.FP32, name="small", sequence_length=None)
    found = ratios(unet_modules("small", shape), expected)
    assert found["convolution"] == pytest.approx([1.0] * 12, rel=0.01)


def test_residual_blocks_save_what_the_profile_counts():
    """Mean and deviation of each batch norm come on top. The head's pooling needs no input, which the profile counts
    because the stage holds it anyway.
    """
    found = ratios(build_modules("resnet50"), build_model("resnet50", precision=Precision.FP32))
    assert found["residual-block"] == pytest.approx([1.0] * 16, rel=0.03)
    assert found["convolution"] == pytest.approx([1.0], rel=0.03)
    assert found["head"][0] < 0.1
