"""Two devices that share every layer compute what one computes, with the collectives that the profile counts."""

import pytest
import torch

from stagecut.models.families.bert import BertShape
from stagecut.models.families.gpt import GptShape
from stagecut.models.families.llama import LlamaShape
from stagecut.models.families.mixtral import MixtralShape
from tests.executor import pool

ODD = 37
"""A vocabulary that two devices cannot share evenly."""
SHAPES = {
    "gpt": GptShape(blocks=1, hidden=16, heads=4, vocabulary=ODD, positions=8, dropout=0.0),
    "bert": BertShape(blocks=1, hidden=16, heads=4, vocabulary=ODD, positions=8, dropout=0.0),
    "llama": LlamaShape(blocks=1, hidden=16, heads=4, key_heads=2, width=24, vocabulary=ODD),
    "mixtral": MixtralShape(blocks=1, hidden=16, heads=4, key_heads=2, width=24, vocabulary=ODD),
}


def compare():
    """What differs between every family alone and shared."""
    from torch.distributed.device_mesh import init_device_mesh

    torch.set_default_dtype(torch.float64)
    mesh = init_device_mesh("cpu", (2,))
    return {name: difference(shape, mesh) for name, shape in SHAPES.items()}


def difference(shape, mesh):
    from torch.distributed.tensor.parallel import parallelize_module

    from stagecut.models.modules.families import modules_of

    chain = modules_of("small", shape, tokens=8, dropout=None)
    runs = []
    for shared in (False, True):
        torch.manual_seed(0)
        modules = [layer.build() for layer in chain.layers]
        if shared:
            for layer, module in zip(chain.layers, modules, strict=True):
                parallelize_module(module, mesh, dict(layer.tensor_parallel()))
        runs.append(run(chain, modules))
    (alone, _), (together, collectives) = runs
    worst = max((one - other).abs().max().item() for one, other in zip(alone, together, strict=True))
    return {"worst": worst, "collectives": collectives}


def run(chain, modules):
    """Loss and gradients; collectives of each layer's forward and of the whole backward."""
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor.debug import CommDebugMode

    inputs, targets = chain.batch(1, torch.Generator().manual_seed(1))
    state, counts = inputs if isinstance(inputs, tuple) else (inputs,), []
    for module in modules:
        with CommDebugMode() as collectives:
            state = module(*state)
        counts.append(collectives.get_total_counts())
        state = state if isinstance(state, tuple) else (state,)
    loss = chain.loss(state if len(state) > 1 else state[0], targets)
    with CommDebugMode() as collectives:
        loss.backward()
    counts.append(collectives.get_total_counts())
    gradients = (parameter.grad for module in modules for parameter in module.parameters())
    whole = (each.full_tensor() if isinstance(each, DTensor) else each for each in gradients)
    return [loss.detach(), *whole], counts


@pytest.fixture(scope="module")
def found():
    return pool.run(compare, world_size=2)[0]


@pytest.mark.parametrize("name", SHAPES)
def test_loss_and_gradients_of_shared_layers_are_those_of_one_device(found, name):
    assert found[name]["worst"] < 1e-12


@pytest.mark.parametrize("name", ["gpt", "llama"])
def test_every_part_all_reduces_once_in_each_direction(found, name):
    """Embedding, attention, feed-forward and head; backward: head, feed-forward, attention."""
    assert found[name]["collectives"] == [1, 1, 1, 1, 3]


def test_experts_all_reduce_the_output_of_each(found):
    """The eight experts reduce one after another, where the profile has a single all-reduce of the chosen ones."""
    assert found["mixtral"]["collectives"][2] == 8
