"""Losses and gradients that are infinite or no numbers end a training, before they reach the weights."""

import math
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team, load
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.ranks.failures import LossError

SGD = partial(torch.optim.SGD, lr=0.1)
PLAN = plan_of((0, 1, 2, 3), replicas=(1, 2, 1), num_microbatches=4)
"""Three stages on four ranks, micro-batches of two samples, of which each replica of stage 1 takes one."""


class Poisonous(nn.Module):
    """Spoils what begins with a given number."""

    def __init__(self, number: float, poison: float) -> None:
        super().__init__()
        self.number, self.poison = number, poison
        self.inner = nn.Linear(3, 3)

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        hit = (state[:, :1] == self.number).to(state.dtype)
        return self.inner(state) + torch.where(hit > 0, self.poison, 0.0)


class Pass(nn.Module):
    """Hands on what it is given, so that samples are known by their first number anywhere."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))

    def forward(self, state: torch.Tensor) -> torch.Tensor:
        return state * self.weight


def numbered() -> tuple[torch.Tensor, torch.Tensor]:
    """Eight samples that begin with their own numbers."""
    inputs = torch.arange(8.0)[:, None].expand(8, 3).contiguous()
    return inputs, torch.zeros(8, 3)


def team_of(*layers: nn.Module, **options) -> Team:
    return Team(PLAN, list(layers), Training(loss_fn=nn.functional.mse_loss, optimizer=SGD, **options))


def weights(team: Team) -> list[torch.Tensor]:
    return [value.detach().clone() for p in team.pipelines for value in p.named_parameters().values()]


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_rank_stage_action_and_layer_are_named(poison: float) -> None:
    """Sample 5 is of the micro-batch [4, 6), and its second half: of replica 1 of stage 1, which is rank 2."""
    team = team_of(Pass(), Poisonous(5.0, poison), Pass())
    before = weights(team)
    with pytest.raises(LossError) as fault:
        team.step(numbered())
    expected = r"rank 2 (pipeline0-group1/1, stage 1): F of samples [4, 6) on stage 1: the loss of step 1 is "
    assert str(fault.value).startswith(expected + str(abs(poison)))
    assert "first to be not finite: the output of layer 'layer1'" in str(fault.value)
    assert fault.value.rank == 2
    assert all(torch.equal(old, new) for old, new in zip(before, weights(team), strict=True))
    assert all(pipeline.num_steps == 0 for pipeline in team.pipelines)


def test_inputs_that_are_not_finite_are_named_as_such() -> None:
    inputs, targets = numbered()
    inputs[7, 2] = math.nan
    with pytest.raises(LossError, match=r"^rank 0 .*F of samples \[6, 8\) on stage 0: .*finite: the input of"):
        team_of(Pass(), Pass(), Pass()).step((inputs, targets))


def test_loss_function_is_named_where_all_layers_are_well() -> None:
    """The target of sample 0 is infinite."""
    inputs, targets = numbered()
    targets[0] = math.inf
    with pytest.raises(
        LossError, match=r"^rank 3 .*F of samples \[0, 2\) on stage 2: .*is inf; first to be not finite: the l"
    ):
        team_of(Pass(), Pass(), Pass()).step((inputs, targets))


def test_evaluation_stops_as_well() -> None:
    with pytest.raises(
        LossError, match=r"^rank 1 .*: F of samples \[2, 4\) on stage 1: the loss of an evaluation after 0"
    ):
        team_of(Pass(), Poisonous(2.0, math.nan), Pass()).evaluate(numbered())


def test_what_a_second_look_does_not_find_is_named_by_its_loss() -> None:
    """Spoiled in the first forward only, as by chance: the last stage saw it."""

    class Once(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.calls, self.weight = 0, nn.Parameter(torch.ones(()))

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            self.calls += self.training
            return state * self.weight * (math.nan if self.training and self.calls == 2 else 1.0)

    with pytest.raises(LossError, match=r"^rank 3 .*F of samples \[2, 4\) on stage 2: .*finite: the loss;"):
        team_of(Once(), Pass(), Pass()).step(numbered())


def test_gradients_that_are_not_finite_stop_where_they_are_clipped() -> None:
    """The root of 0 has an infinite slope, whose gradient is times 0: no number; the loss is well."""

    class Root(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(3))

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            return state * (self.weight * 0).sqrt()

    team = team_of(Pass(), Root(), Pass(), clip_norm=1.0)
    before = weights(team)
    message = r"^rank 1 .*: B on stage 1: the gradient norm of step 1 is nan; .* gradient of layer1.weight"
    with pytest.raises(LossError, match=message):
        team.step(numbered())
    assert all(torch.equal(old, new) for old, new in zip(before, weights(team), strict=True))


def test_training_goes_on_where_the_check_is_left_out() -> None:
    team = team_of(Pass(), Poisonous(5.0, math.nan), Pass(), check_finite=False)
    assert math.isnan(team.evaluate(numbered()))
    assert math.isnan(team.step(numbered()))
    assert any(value.isnan().any() for value in weights(team))


def test_training_goes_on_with_the_next_batch() -> None:
    """One rank by itself: the spoiled batch is skipped, and the losses are those of a training without it."""
    plan, good = plan_of((0, 3), num_microbatches=4), numbered()
    bad = torch.full((8, 3), math.nan), good[1]

    def losses(*batches) -> list[float]:
        torch.manual_seed(0)
        pipeline = load(plan, [nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3)], nn.functional.mse_loss, SGD, clip_norm=1.0)
        found = []
        for batch in batches:
            try:
                found += [pipeline.step(batch), pipeline.evaluate(batch)]
            except LossError:
                found.append(math.nan)
        return found

    first, second, skipped, *rest = losses(good, bad, good)
    assert math.isnan(skipped)
    assert [first, second, *rest] == losses(good, good)
