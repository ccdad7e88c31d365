"""Layers in torch compute, learn and can be repeated."""

import subprocess
import sys

import pytest
import torch

from stagecut.models import build_modules
from stagecut.models.families.mixtral import MixtralShape
from stagecut.models.families.resnet import ResnetShape
from stagecut.models.families.unet import UnetShape
from stagecut.models.families.vit import VitShape
from stagecut.planner.core.messages.errors import BadInputError

SMALL_TEXT = {"gpt-mini": 16, "bert-mini": 16, "llama-mini": 16}


def small_chain(name):
    """A chain of every family that runs in a moment."""
    from stagecut.models.modules.families import modules_of

    shapes = {
        "mixtral": MixtralShape(blocks=1, hidden=32, heads=4, key_heads=2, width=48, vocabulary=64),
        "vit": VitShape(blocks=1, hidden=32, heads=4, patch=56),
        "resnet": ResnetShape(repeats=(1, 1, 1, 1)),
        "unet": UnetShape(side=16, widths=(4, 8)),
    }
    if name in shapes:
        return modules_of(name, shapes[name], tokens=16, dropout=None)
    return build_modules(name, sequence_length=SMALL_TEXT.get(name))


FAMILIES = (*SMALL_TEXT, "vgg16-cifar", "synthetic:0:3", "mixtral", "vit", "resnet", "unet")


def run(modules, inputs):
    state = inputs if isinstance(inputs, tuple) else (inputs,)
    for module in modules:
        state = module(*state)
        state = state if isinstance(state, tuple) else (state,)
    return state if len(state) > 1 else state[0]


def draw(chain, *, num_samples, seed=0):
    torch.manual_seed(seed)
    modules = [layer.build() for layer in chain.layers]
    return modules, *chain.batch(num_samples, torch.Generator().manual_seed(seed))


def part(tensors, place):
    """One sample of a tensor or of several."""
    if isinstance(tensors, tuple):
        return tuple(part(each, place) for each in tensors)
    return tensors[place : place + 1]


@pytest.mark.parametrize("name", FAMILIES)
def test_every_weight_gets_a_finite_gradient(name):
    chain = small_chain(name)
    modules, inputs, targets = draw(chain, num_samples=2)
    chain.loss(run(modules, inputs), targets).backward()
    for layer, module in zip(chain.layers, modules, strict=True):
        for weight, parameter in module.named_parameters():
            assert parameter.grad is not None, (layer.name, weight)
            assert torch.isfinite(parameter.grad).all(), (layer.name, weight)


@pytest.mark.parametrize("name", [name for name in FAMILIES if name != "resnet"])
def test_loss_is_the_mean_of_the_losses_of_samples(name):
    """Unequal micro-batches can then be weighted by their samples; batch norm looks at all samples at once."""
    chain = small_chain(name)
    modules, inputs, targets = draw(chain, num_samples=3)
    modules = [module.double() for module in modules]
    inputs, targets = in_double(inputs), in_double(targets)
    alone = [chain.loss(run(modules, part(inputs, place)), part(targets, place)) for place in range(3)]
    whole = chain.loss(run(modules, inputs), targets)
    assert whole.item() == pytest.approx(sum(loss.item() for loss in alone) / 3, rel=1e-12)


def in_double(tensors):
    if isinstance(tensors, tuple):
        return tuple(in_double(each) for each in tensors)
    return tensors.double() if tensors.is_floating_point() else tensors


@pytest.mark.parametrize("name", FAMILIES)
def test_one_seed_gives_the_same_weights_and_batches(name):
    chain = small_chain(name)
    first, second = draw(chain, num_samples=2), draw(chain, num_samples=2)
    weights = ([each.state_dict() for each in modules] for modules, _, _ in (first, second))
    for one, other in zip(*weights, strict=True):
        assert all(torch.equal(one[key], other[key]) for key in one)
    torch.testing.assert_close(first[1:], second[1:], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["gpt-mini", "llama-mini", "bert-mini", "mixtral"])
def test_layers_run_in_bf16(name):
    chain = small_chain(name)
    modules, inputs, targets = draw(chain, num_samples=2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = chain.loss(run(modules, inputs), targets)
    exact = chain.loss(run(modules, inputs), targets)
    assert loss.item() == pytest.approx(exact.item(), rel=0.01)


def test_training_lowers_the_loss_of_gpt_mini():
    """The loss begins at that of guessing, log 4096 = 8.3; the head is tied to the embedding."""
    chain = build_modules("gpt-mini", sequence_length=32)
    modules, inputs, targets = draw(chain, num_samples=4)
    (tie,) = chain.ties
    modules[tie.copy[0]].project.weight = modules[tie.owner[0]].tokens.weight
    optimizer = torch.optim.AdamW({w: None for module in modules for w in module.parameters()}, lr=1e-3)
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = chain.loss(run(modules, inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(8.32, abs=0.2)
    assert losses[-1] < losses[0] - 1


def test_attention_of_a_decoder_sees_no_later_token():
    modules, inputs, _ = draw(small_chain("llama-mini"), num_samples=1)
    changed = inputs.clone()
    changed[0, 10] = (changed[0, 10] + 1) % 2048
    before, after = run(modules, inputs), run(modules, changed)
    torch.testing.assert_close(before[:, :10], after[:, :10])
    assert not torch.allclose(before[:, 10:], after[:, 10:])


def test_rotary_positions_only_depend_on_distance():
    """The product of a turned query and a turned key is the same three tokens further on."""
    from stagecut.models.modules.transformer import rotate

    query, key = (torch.randn(8, dtype=torch.float64).expand(1, 1, 12, 8) for _ in range(2))
    query, key = rotate(query, key, base=10_000.0)
    scores = (query @ key.transpose(-1, -2))[0, 0]
    torch.testing.assert_close(scores[:-3, :-3], scores[3:, 3:], rtol=1e-5, atol=1e-5)


def test_published_dropout_can_be_turned_off():
    def masks(**options):
        layers = build_modules("gpt2-345m", **options).layers
        with torch.device("meta"):
            return {part.p for part in layers[1].build().modules() if isinstance(part, torch.nn.Dropout)}

    assert masks() == {0.1}
    assert masks(dropout=0.0) == {0.0}


@pytest.mark.parametrize("dropout", [-0.1, 1.0])
def test_dropout_is_a_probability(dropout):
    with pytest.raises(BadInputError, match="dropout must be from 0 to below 1"):
        build_modules("gpt-mini", dropout=dropout)


def test_modules_refuse_the_sequence_that_profiles_refuse():
    with pytest.raises(BadInputError, match="at most 256, its number of learned positions"):
        build_modules("gpt-mini", sequence_length=257)


@pytest.mark.parametrize(
    "line",
    ["models.build_modules('gpt-mini')", "hugging_face.chain_of(None)"],
    ids=["catalogue", "hugging"],
)
def test_without_torch_the_answer_says_what_to_install(line):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from stagecut import models\nfrom stagecut.models import hugging_face\n"
        "from stagecut.planner.core.messages.errors import BadInputError\n"
        f"try:\n    {line}\nexcept BadInputError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'stagecut[run]'" in done.stdout
