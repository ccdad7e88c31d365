"""All ranks in one process."""

import itertools
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor import Team, load
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.build import chain_of
from stagecut.executor.play.reference import reference_step
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.schedule import Schedule
from tests.executor.plans import unequal_plan

SGD = partial(torch.optim.SGD, lr=0.1)


def layers(count: int = 4) -> list[nn.Module]:
    """A chain of small products in double precision."""
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double() for _ in range(count)]


def batch(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(samples, 3, generator=generator, dtype=torch.float64) for _ in range(2))


def training(**options) -> Training:
    return Training(loss_fn=nn.functional.mse_loss, optimizer=SGD, **options)


def test_a_team_trains_like_a_single_process() -> None:
    """Three steps of three stages with replicas, against plain SGD on the whole batch."""
    plan = plan_of((0, 1, 3, 4), replicas=(1, 2, 1))
    team = Team(plan, layers(), training())
    losses = [team.step(batch(8)) for _ in range(3)]
    model = nn.Sequential(*layers())
    optimizer = SGD(model.parameters())
    for loss in losses:
        own = nn.functional.mse_loss(model(batch(8)[0]), batch(8)[1])
        assert loss == pytest.approx(own.item(), abs=1e-12)
        optimizer.zero_grad()
        own.backward()
        optimizer.step()


@pytest.mark.parametrize("seed", range(6))
def test_sublots_of_any_size_have_the_gradients_of_a_single_process(seed: int) -> None:
    """Two to four stages with sizes that divide nothing, messages that cut and gather, replicas and recomputation."""
    draw = random.Random(seed)
    for _ in range(8):
        plan = unequal_plan(draw, num_layers=4)
        samples = len(plan.pipelines) * plan.num_samples
        team = Team(plan, layers(), training())
        expected = reference_step(chain_of(layers()), batch(samples), nn.functional.mse_loss, seed=0)
        assert team.evaluate(batch(samples)) == pytest.approx(expected.loss, abs=1e-12)
        assert team.step(batch(samples)) == pytest.approx(expected.loss, abs=1e-12)
        for pipeline in team.pipelines:
            for name, parameter in pipeline.named_parameters().items():
                assert torch.allclose(parameter.grad.cpu(), expected.gradients[name], rtol=0, atol=1e-12), plan


def test_gradients_are_clipped_by_the_norm_of_the_whole_model() -> None:
    """The norm counts every parameter once, whatever the replicas and pipelines."""
    plan = plan_of((0, 2, 4), replicas=(2, 1), num_pipelines=2, num_microbatches=2)
    team = Team(plan, layers(), training(clip_norm=1e-3))
    team.step(batch(8))
    reference = reference_step(chain_of(layers()), batch(8), nn.functional.mse_loss, seed=0)
    expected = torch.stack([gradient.norm() for gradient in reference.gradients.values()]).norm()
    for pipeline in team.pipelines:
        assert pipeline.gradient_norm == pytest.approx(float(expected), rel=1e-12)
        for name, parameter in pipeline.named_parameters().items():
            scaled = reference.gradients[name] * (1e-3 / (expected + 1e-6))
            assert torch.allclose(parameter.grad.cpu(), scaled, rtol=1e-12, atol=0)


def test_recomputed_dropout_draws_the_same_masks() -> None:
    """At rate 0.5 and with products of one, the gradient of the input weight counts exactly the kept elements."""
    plan = plan_of((0, 2), recompute=(True,), num_microbatches=1)
    chain = [nn.Linear(3, 64, bias=False), nn.Sequential(nn.Dropout(0.5), nn.Linear(64, 1, bias=False))]
    kept = []
    chain[1][0].register_forward_hook(lambda module, inputs, output: kept.append((output != 0).clone()))
    pipeline = load(plan, chain, lambda output, targets: output.sum(), SGD)
    pipeline.step((torch.ones(2, 3), torch.zeros(2)))
    shape_run, forward, again = kept
    assert shape_run.all()
    assert torch.equal(forward, again)


def test_a_fault_of_one_rank_is_raised_and_nobody_hangs() -> None:
    """The second stage fails; the first one waits for its gradients."""

    class Failing(nn.Module):
        def forward(self, state: torch.Tensor) -> torch.Tensor:
            if self.training:
                raise ValueError("no such luck")
            return state

    team = Team(plan_of((0, 1, 2)), [nn.Linear(3, 3).double(), Failing()], training())
    with pytest.raises(ValueError, match="no such luck"):
        team.step(batch(8))


def test_a_team_goes_on_after_a_fault() -> None:
    """The second stage fails once; then the losses are those of a team that never did."""

    class FailingOnce(nn.Module):
        left = 1

        def forward(self, state: torch.Tensor) -> torch.Tensor:
            if self.training and self.left:
                self.left -= 1
                raise ValueError("no such luck")
            return state

    teams = [
        Team(plan_of((0, 2, 4)), [*layers(2), nn.Tanh(), last], training()) for last in (FailingOnce(), nn.Identity())
    ]
    with pytest.raises(ValueError, match="no such luck"):
        teams[0].step(batch(8))
    assert [teams[0].step(batch(8)) for _ in range(2)] == [teams[1].step(batch(8)) for _ in range(2)]


def test_a_batch_of_another_size_is_refused() -> None:
    """The plan has 4 micro-batches of 2."""
    team = Team(plan_of((0, 2, 4)), layers(), training())
    with pytest.raises(BadInputError, match="samples of the inputs must be 8, got 6"):
        team.step(batch(6))


def test_layers_that_devices_divide_need_processes() -> None:
    """Threads have no process groups."""
    chain = chain_of(layers())
    divided = replace(chain.layers[0], tensor_parallel=dict)
    with pytest.raises(BadInputError, match="a process for each device"):
        Team(
            plan_of((0, 2, 4), tensor_parallel=(2, 1)), replace(chain, layers=(divided, *chain.layers[1:])), training()
        )


def test_layers_that_devices_compute_whole_need_no_processes() -> None:
    """The two devices of the first stage have the same gradients, those of a single process."""
    team = Team(plan_of((0, 2, 4), tensor_parallel=(2, 1)), layers(), training())
    team.step(batch(8))
    expected = reference_step(chain_of(layers()), batch(8), nn.functional.mse_loss, seed=0).gradients
    for pipeline in team.pipelines:
        for name, parameter in pipeline.named_parameters().items():
            assert torch.allclose(parameter.grad.cpu(), expected[name], rtol=1e-12, atol=0)


def test_a_list_of_layers_needs_a_loss() -> None:
    """A catalogue chain has one of its own."""
    with pytest.raises(BadInputError, match="pass loss_fn"):
        Team(plan_of((0, 2, 4)), layers(), Training())


def test_a_plan_for_several_devices_needs_as_many_processes() -> None:
    """This process is alone."""
    with pytest.raises(BadInputError, match="the plan has 2 devices, and needs one process for each, but there are 1"):
        load(plan_of((0, 2, 4)), layers(), nn.functional.mse_loss)


def test_spans_cover_every_action_and_end_with_the_update() -> None:
    """1F1B on two stages with two micro-batches: F F B B and F B F B, then sync and update."""
    team = Team(plan_of((0, 2, 4), num_microbatches=2), layers(), training())
    team.step(batch(4))
    kinds = [[span.kind for span in pipeline.last_step.spans] for pipeline in team.pipelines]
    assert kinds == [["F", "F", "B", "B", "sync", "update"], ["F", "B", "F", "B", "sync", "update"]]
    for pipeline in team.pipelines:
        spans = pipeline.last_step.spans
        assert all(span.ready_s <= span.start_s <= span.end_s for span in spans)
        assert all(before.end_s <= after.ready_s for before, after in itertools.pairwise(spans))


def test_weights_do_not_depend_on_the_partition() -> None:
    """Functions that build layers, under one seed, in one stage and in three interleaved ones."""
    builders = [lambda: nn.Linear(3, 3) for _ in range(4)]
    loss = nn.functional.mse_loss
    alone = load(plan_of((0, 4)), builders, loss, seed=7).named_parameters()
    plan = plan_of((0, 1, 2, 3, 4), schedule=Schedule.INTERLEAVED, chunks=2)
    team = Team(plan, builders, Training(loss_fn=loss, seed=7))
    divided = {name: value for pipeline in team.pipelines for name, value in pipeline.named_parameters().items()}
    assert divided.keys() == alone.keys()
    assert all(torch.equal(divided[name].cpu(), alone[name]) for name in alone)
