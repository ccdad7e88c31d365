"""Losses over something else than samples: tokens that are not padding, unlike many in every part of a batch."""

from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team, load
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.models.modules.losses import IGNORED, class_loss, pre_training_loss
from stagecut.planner.core.messages.errors import BadInputError
from tests.unit.models.test_module_hugging_face import VOCABULARY, chain_of, whole_model

FROZEN = partial(torch.optim.SGD, lr=0.0)
PLANS = {
    "one stage": plan_of((0, 5), num_microbatches=4),
    "stages and replicas": plan_of((0, 2, 5), replicas=(1, 2), num_microbatches=4),
    "two pipelines": plan_of((0, 3, 5), replicas=(2, 1), num_pipelines=2, num_microbatches=2),
}
"""Plans for eight samples and five layers: embedding, three blocks, head."""
LENGTHS = (9, 1, 2, 0, 0, 0, 7, 3)
"""Tokens of every sample that are no padding: two micro-batches, and replicas of more, have next to none."""


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Texts of 9 tokens, and labels that are -100 behind their ends and in a few other places."""
    tokens = torch.randint(VOCABULARY, (len(LENGTHS), 9), generator=torch.Generator().manual_seed(3))
    labels = tokens.clone()
    for sample, length in enumerate(LENGTHS):
        labels[sample, length:] = IGNORED
    labels[0, 2:5] = IGNORED
    return tokens, labels


def gradients_of(team: Team) -> dict[str, torch.Tensor]:
    named = (pipeline.named_parameters() for pipeline in team.pipelines)
    return {name: parameter.grad.cpu() for own in named for name, parameter in own.items()}


def named_gradients(model, chain) -> dict[str, torch.Tensor]:
    """Those of the model that the chain was taken from, by the names they have in the chain."""
    return {
        f"{layer.name}.{name}": weight.grad
        for layer in chain.layers
        for name, weight in layer.build.args[0].named_parameters()
    }


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", ["gpt2", "llama", "bert"])
def test_loss_and_gradients_are_those_of_transformers_whatever_the_padding(name, plan) -> None:
    """transformers takes a decoder's loss in fp32 whatever the model's precision, hence the wider tolerance."""
    model = whole_model(name, torch.float64)
    chain, (tokens, labels) = chain_of(model), padded_batch()
    team = Team(plan, chain, Training(optimizer=FROZEN))
    expected = model(tokens, labels=labels).loss
    expected.backward()
    assert team.evaluate((tokens, labels)) == pytest.approx(expected.item(), rel=1e-6)
    assert team.step((tokens, labels)) == pytest.approx(expected.item(), rel=1e-6)
    theirs = named_gradients(model, chain)
    for key, gradient in gradients_of(team).items():
        torch.testing.assert_close(gradient, theirs[key], rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
@pytest.mark.parametrize("name", ["gpt2", "mistral"])
def test_masks_reach_every_stage(name, plan) -> None:
    """Texts padded on the left; each has a token at least, for attention to nothing is not a number in any model."""
    model = whole_model(name, torch.float64)
    chain, (tokens, _) = chain_of(model), padded_batch()
    mask = torch.arange(9) >= 8 - torch.tensor(LENGTHS).clamp(max=8)[:, None]
    labels = tokens.masked_fill(~mask, IGNORED)
    expected = model(tokens, attention_mask=mask, labels=labels).loss
    expected.backward()
    team = Team(plan, chain, Training(optimizer=FROZEN))
    assert team.step(((tokens, mask), labels)) == pytest.approx(expected.item(), rel=1e-6)
    theirs = named_gradients(model, chain)
    for key, gradient in gradients_of(team).items():
        torch.testing.assert_close(gradient, theirs[key], rtol=1e-5, atol=1e-7)


def test_loss_is_exact_in_double_precision() -> None:
    """The labels moved by one, 3 of the first sample's and 10 more left out: 8 - 3 + 0 + 1 + 6 + 2 = 14 count."""
    model = whole_model("gpt2", torch.float64)
    tokens, labels = padded_batch()
    moved = labels[:, 1:].reshape(-1)
    assert (moved != IGNORED).sum() == 14
    logits = model(tokens).logits[:, :-1].reshape(-1, VOCABULARY)
    expected = nn.functional.cross_entropy(logits, moved, reduction="sum") / 14
    expected.backward()
    chain = chain_of(model)
    team = Team(PLANS["two pipelines"], chain, Training(optimizer=FROZEN))
    assert team.step((tokens, labels)) == pytest.approx(expected.item(), abs=1e-12)
    theirs = named_gradients(model, chain)
    for key, gradient in gradients_of(team).items():
        torch.testing.assert_close(gradient, theirs[key], rtol=0, atol=1e-12)


@pytest.mark.parametrize("loss_fn", [class_loss, pre_training_loss])
def test_losses_of_the_catalogue_leave_padding_out(loss_fn) -> None:
    """Two outputs, as of BERT: classes of every token, and one class for each sample; or the first alone."""

    class Heads(nn.Module):
        def forward(self, state):
            return (state, state.mean(dim=1)) if loss_fn is pre_training_loss else state

    torch.manual_seed(0)
    modules = [nn.Linear(4, 6).double(), Heads()]
    inputs, (_, labels) = torch.randn(8, 9, 4, dtype=torch.float64), padded_batch()
    labels = labels.where(labels == IGNORED, labels % 6)
    follows = torch.tensor([0, IGNORED, 1, 1, 0, IGNORED, IGNORED, 5])
    targets = (labels, follows) if loss_fn is pre_training_loss else labels
    logits = modules[0](inputs)
    expected = nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    if loss_fn is pre_training_loss:
        expected = expected + nn.functional.cross_entropy(logits.mean(dim=1), follows)
    plan = plan_of((0, 1, 2), replicas=(2, 2), num_microbatches=4)
    team = Team(plan, modules, Training(loss_fn=loss_fn, optimizer=FROZEN))
    assert team.step((inputs, targets)) == pytest.approx(expected.item(), abs=1e-12)


def test_losses_that_count_take_no_other_count() -> None:
    """A count would divide a mean once more."""
    with pytest.raises(BadInputError, match="does its own counting; omit count"):
        load(plan_of((0, 1)), [nn.Linear(3, 3)], class_loss, count=len)
