"""Batches whose samples change their shape from call to call."""

from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.build import chain_of
from stagecut.executor.play.reference import reference_step
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.schedule import Schedule
from tests.executor.tied_chain import VOCABULARY, chain

FROZEN = partial(torch.optim.SGD, lr=0.0)
PLANS = {
    "stages and replicas": plan_of((0, 1, 3, 6), replicas=(1, 2, 1), num_microbatches=3),
    "two pipelines": plan_of((0, 4, 6), num_pipelines=2, num_microbatches=2),
    "interleaved": plan_of((0, 1, 3, 4, 6), schedule=Schedule.INTERLEAVED, chunks=2, num_microbatches=2),
    "recomputed": plan_of((0, 2, 6), recompute=(True, True), num_microbatches=2),
    "unequal sizes": plan_of((0, 2, 6), micro_batch=4, num_microbatches=2, sizes=((2, 4), (4, 4))),
}


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tokens_of(team: Team, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A global batch of texts of that length."""
    generator = torch.Generator().manual_seed(length)
    tokens = torch.randint(VOCABULARY, (team.pipelines[0].global_batch, length), generator=generator)
    return tokens, tokens.flip(1)


def gradients_of(team: Team) -> dict[str, torch.Tensor]:
    """Gradients by global name, from whichever rank has them."""
    named = (pipeline.named_parameters() for pipeline in team.pipelines)
    return {name: parameter.grad.cpu() for own in named for name, parameter in own.items()}


def check(team: Team, chain, batch, loss) -> None:
    """Evaluated loss, trained loss and gradients against a single process."""
    expected = reference_step(chain, batch, loss, seed=5)
    assert team.evaluate(batch) == pytest.approx(expected.loss, abs=1e-9)
    assert team.step(batch) == pytest.approx(expected.loss, abs=1e-9)
    for name, gradient in gradients_of(team).items():
        torch.testing.assert_close(gradient, expected.gradients[name], rtol=0, atol=1e-9)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_sequences_of_any_length_follow_each_other(plan) -> None:
    """Longer, shorter and the first length again; the buffers of the first batch would fit none but that."""
    layers = chain()
    team = Team(plan, layers, Training(optimizer=FROZEN, seed=5))
    for length in (5, 8, 2, 5, 8):
        check(team, layers, tokens_of(team, length), layers.loss)


def test_evaluation_may_have_another_length_than_training() -> None:
    """A step of 5 tokens between evaluations of 8 and of 1."""
    layers = chain()
    team = Team(PLANS["stages and replicas"], layers, Training(optimizer=FROZEN, seed=5))
    for length, work in ((8, team.evaluate), (5, team.step), (1, team.evaluate), (5, team.step)):
        batch = tokens_of(team, length)
        assert work(batch) == pytest.approx(reference_step(layers, batch, layers.loss, seed=5).loss, abs=1e-9)


def test_images_of_any_size_and_type_follow_each_other() -> None:
    """Convolutions take any side; the first layer casts whole numbers, so that inputs may be uint8 or floats."""

    class Cast(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return images.double() / 255

    torch.manual_seed(0)
    modules = [Cast(), nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Sequential(nn.Conv2d(4, 2, 1), nn.AdaptiveAvgPool2d(1))]
    team = Team(plan_of((0, 2, 4)), modules, Training(loss_fn=nn.functional.mse_loss, optimizer=FROZEN))
    layers, targets = chain_of(modules, copied=True), torch.rand(8, 2, 1, 1)
    for side, dtype in ((6, torch.uint8), (9, torch.float64), (6, torch.float64), (6, torch.uint8)):
        images = (255 * torch.rand(8, 3, side, side)).to(dtype)
        check(team, layers, (images, targets), nn.functional.mse_loss)


def test_states_of_another_type_are_received_as_such() -> None:
    """Layers hand on what they are given: single or double precision."""
    modules = [nn.Tanh(), nn.Softplus()]
    team = Team(plan_of((0, 1, 2)), modules, Training(loss_fn=nn.functional.mse_loss, optimizer=FROZEN))
    for dtype in (torch.float64, torch.float32, torch.float64):
        batch = torch.rand(8, 3, dtype=dtype), torch.rand(8, 3, dtype=dtype)
        expected = nn.functional.mse_loss(nn.functional.softplus(batch[0].tanh()), batch[1])
        assert team.evaluate(batch) == pytest.approx(expected.item(), rel=1e-7 if dtype == torch.float32 else 1e-15)


def test_layers_whose_outputs_depend_on_more_than_the_shapes_are_refused() -> None:
    """The last samples are dropped where a sample is large: shapes that no neighbour can foresee."""

    class Trimmed(nn.Module):
        def forward(self, state: torch.Tensor) -> torch.Tensor:
            return state[:, :2] if state.max() > 1 else state

    team = Team(plan_of((0, 1, 2)), [Trimmed(), nn.Tanh()], Training(loss_fn=nn.functional.mse_loss, optimizer=FROZEN))
    assert team.evaluate((torch.zeros(8, 3), torch.zeros(8, 3))) == 0.0
    message = r"stage 0 outputs \(2\) float64 per sample, but a trial run of one sample gave \(3\) float64"
    with pytest.raises(BadInputError, match=message):
        team.evaluate((2 * torch.ones(8, 3), torch.zeros(8, 3)))
