"""Training through waves equals plain training wherever nothing is stale, and delayed training where it is."""

import random
from functools import partial

import pytest
import torch

from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.schemes import BSP, DILOCO, LOCAL_SGD, SSP
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from tests.executor.waves.wave_plans import (
    MSE,
    alone,
    check_close,
    layers,
    plan_of,
    samples,
    synchronous_plan,
    worker_of,
)

SGD = partial(torch.optim.SGD, lr=0.1)
MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAM = partial(torch.optim.Adam, lr=0.01)


def team_of(plan, optimizer=SGD, **options):
    return WaveTeam(plan, layers(), WaveTraining(loss_fn=MSE, optimizer=optimizer, **options))


def parts_of(batch, sizes):
    """Consecutive minibatches."""
    return list(zip(*(torch.split(tensor, sizes) for tensor in batch), strict=True))


def test_learning_rates_change_once_a_wave():
    """Stages whose layers two servers own make one step of the scheduler for each wave, as a single process does."""
    workers = [worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 4), in_flight=1)]
    plan = plan_of(*workers, local_step=LocalStep.WAVE)
    halving = partial(torch.optim.lr_scheduler.ExponentialLR, gamma=0.5)
    team, batch = team_of(plan, MOMENTUM, scheduler=halving), samples(3 * plan.samples_per_wave)
    team.train(sharded(batch, plan, seed=None), num_waves=3)
    model = torch.nn.Sequential(*layers())
    optimizer = MOMENTUM(model.parameters())
    scheduler = halving(optimizer)
    for inputs, targets in parts_of(batch, plan.samples_per_wave):
        optimizer.zero_grad()
        MSE(model(inputs), targets).backward()
        optimizer.step()
        scheduler.step()
    check_close(team.global_weights(), {f"layer{name}": value.detach() for name, value in model.named_parameters()})


def wave_loss(plan, reports, wave):
    """Mean loss over all samples of a wave."""
    total = 0.0
    for report in reports:
        worker = plan.workers[report.worker]
        total += worker.minibatch * sum(report.losses[wave * worker.wave : (wave + 1) * worker.wave])
    return total / plan.samples_per_wave


@pytest.mark.parametrize("seed", range(8))
def test_one_step_a_wave_has_loss_and_weights_of_a_single_process(seed):
    """Unlike workers in cuts, minibatches, waves, over servers or by all-reduce; three waves with momentum."""
    plan = synchronous_plan(random.Random(seed), num_layers=4)
    team, batch = team_of(plan, MOMENTUM), samples(3 * plan.samples_per_wave)
    reports = team.train(sharded(batch, plan, seed=None), num_waves=3)
    losses, weights = alone(parts_of(batch, plan.samples_per_wave), MOMENTUM)
    assert [wave_loss(plan, reports, wave) for wave in range(3)] == pytest.approx(losses, abs=1e-9)
    check_close(team.global_weights(), weights)


@pytest.mark.parametrize("seed", range(3))
def test_gradients_of_one_wave_are_those_of_a_single_process(seed):
    """A step of plain SGD of length 1 is the gradient."""
    plan, unit = synchronous_plan(random.Random(100 + seed), num_layers=4), partial(torch.optim.SGD, lr=1.0)
    team, batch = team_of(plan, unit), samples(plan.samples_per_wave)
    team.train(sharded(batch, plan, seed=None), num_waves=1)
    check_close(team.global_weights(), alone([batch], unit)[1])


def test_workers_of_speeds_3_and_1_share_a_batch_of_8_as_6_and_2():
    """Waves of 6 and 2 minibatches of 1 sample."""
    fast = worker_of("fast", (0, 2, 4), minibatch=1, in_flight=6)
    slow = worker_of("slow", (0, 1, 4), minibatch=1, in_flight=2)
    plan = plan_of(fast, slow, local_step=LocalStep.WAVE)
    assert [worker.samples_per_wave for worker in plan.workers] == [6, 2]
    team, batch = team_of(plan, ADAM), samples(8)
    reports = team.train(sharded(batch, plan, seed=None), num_waves=2)
    assert [len(report.losses) for report in reports if report.losses] == [12, 4]
    losses, weights = alone([batch, batch], ADAM)
    assert [wave_loss(plan, reports, wave) for wave in range(2)] == pytest.approx(losses, abs=1e-9)
    check_close(team.global_weights(), weights)


@pytest.mark.parametrize("served", [True, False])
def test_wsp_with_nothing_in_flight_and_no_distance_is_synchronous_training(served):
    """Two workers add their updates, so each makes half a step: together that is one with the mean gradient."""
    plan = plan_of(worker_of("a", (0, 2, 4)), worker_of("b", (0, 1, 3, 4)), served=served)
    half = team_of(plan, partial(torch.optim.SGD, lr=0.05))
    whole = team_of(plan_of(*plan.workers, served=served, local_step=LocalStep.WAVE))
    batch = samples(5 * plan.samples_per_wave)
    for team in (half, whole):
        team.train(sharded(batch, plan, seed=None), num_waves=5)
    weights = alone(parts_of(batch, plan.samples_per_wave), SGD)[1]
    check_close(half.global_weights(), weights)
    check_close(whole.global_weights(), weights)


def delayed(batches, optimizer, delay):
    """Gradients at the weights that hold updates 1 .. p - delay, applied by one optimizer to the newest weights."""
    model = torch.nn.Sequential(*layers())
    steps, losses = optimizer(model.parameters()), []
    history = [{name: value.detach().clone() for name, value in model.named_parameters()}]
    for number, (inputs, targets) in enumerate(batches, start=1):
        old = {name: value.clone().requires_grad_() for name, value in history[max(0, number - delay)].items()}
        loss = MSE(torch.func.functional_call(model, old, (inputs,)), targets)
        gradients = torch.autograd.grad(loss, list(old.values()))
        for parameter, gradient in zip(model.parameters(), gradients, strict=True):
            parameter.grad = gradient
        steps.step()
        history.append({name: value.detach().clone() for name, value in model.named_parameters()})
        losses.append(loss.item())
    return losses, {f"layer{name}": value for name, value in history[-1].items()}


@pytest.mark.parametrize("optimizer", [MOMENTUM, ADAM])
@pytest.mark.parametrize("cuts", [(0, 4), (0, 1, 2, 4)])
def test_one_worker_with_four_in_flight_is_a_sequential_program_with_delayed_updates(optimizer, cuts):
    """Minibatch p computes with updates 1 .. p - 4 on every stage, also where backwards follow forwards at once."""
    plan = plan_of(worker_of("a", cuts, in_flight=4, recompute=len(cuts) == 2))
    team, batch = team_of(plan, optimizer), samples(2 * 12)
    data = sharded(batch, plan, seed=None)
    reports = [*team.train(data, num_waves=1), *team.train(data, num_waves=2)]
    losses, weights = delayed(parts_of(batch, 2), optimizer, 4)
    assert [loss for report in reports for loss in report.losses] == pytest.approx(losses, abs=1e-9)
    assert reports[0].local_staleness == 3
    check_close(team.global_weights(), weights)


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_a_stage_keeps_as_many_copies_of_its_weights_as_minibatches_are_in_flight(in_flight):
    """The newest version is the weights themselves until the next step; pulls give both the same memory again."""
    workers = [worker_of(name, (0, 2, 4), in_flight=in_flight) for name in "ab"]
    team = team_of(plan_of(*workers), ADAM)
    team.train(sharded(samples(16), team.execution.plan), num_waves=3)
    for worker in team.workers:
        for name, parameter in worker.weights.master.items():
            versions = [version.tensors[name].data_ptr() for version in worker.weights.versions.values()]
            assert len(versions) == len({*versions, parameter.data_ptr()}) == in_flight


@pytest.mark.parametrize("distance", [1, 2])
def test_one_step_a_wave_with_distance_is_a_sequential_program_with_delayed_steps(distance):
    """By all-reduce the gate of wave c has exactly c - D waves: step c + 1 takes gradients at the weights of c - D."""
    workers = [worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 1, 4), minibatch=1, in_flight=3)]
    plan = plan_of(*workers, served=False, local_step=LocalStep.WAVE, clock_distance=distance)
    team, batch = team_of(plan, MOMENTUM), samples(6 * plan.samples_per_wave)
    reports = team.train(sharded(batch, plan, seed=None), num_waves=6)
    losses, _ = delayed(parts_of(batch, plan.samples_per_wave), MOMENTUM, distance + 1)
    assert [wave_loss(plan, reports, wave) for wave in range(6)] == pytest.approx(losses, abs=1e-9)
    # The second of two minibatches may lack D waves of three of the other worker, and the two that begin before it.
    assert reports[0].global_staleness == reports[0].global_bound == 3 * distance + 2


@pytest.mark.parametrize("in_flight", [1, 2, 4])
def test_servers_and_delayed_all_reduce_train_alike_without_distance(in_flight):
    """With D = 0 a gate has exactly the waves that it needs, whoever is faster; in two calls or in one."""
    workers = [worker_of("a", (0, 2, 4), in_flight=in_flight), worker_of("b", (0, 1, 3, 4), in_flight=in_flight)]
    plans = [plan_of(*workers, served=served) for served in (True, False)]
    batch = samples(20)
    found = []
    for plan, calls in zip(plans, [(4,), (1, 3)], strict=True):
        team = team_of(plan, ADAM)
        reports = [team.train(sharded(batch, plan), num_waves=count) for count in calls]
        losses = [[loss for each in reports for loss in each[rank].losses] for rank in range(5)]
        found.append((losses, team.global_weights()))
    (first, weights), (second, others) = found
    assert first == [pytest.approx(own, abs=1e-9) for own in second]
    check_close(weights, others)


def averaged(plan, batch, *, outer_lr, momentum=0.0):
    """Local steps of every worker, then Nesterov's step with minus the mean change, wave after wave."""
    data, models = sharded(batch, plan, seed=None), [torch.nn.Sequential(*layers()) for _ in plan.workers]
    optimizers = [SGD(model.parameters()) for model in models]
    world = torch.nn.Sequential(*layers())
    outer = torch.optim.SGD(world.parameters(), lr=outer_lr, momentum=momentum, nesterov=momentum > 0)
    for wave in range(3):
        for index, (model, steps) in enumerate(zip(models, optimizers, strict=True)):
            model.load_state_dict(world.state_dict())
            for minibatch in range(wave * plan.workers[index].wave + 1, (wave + 1) * plan.workers[index].wave + 1):
                inputs, targets = data(index, minibatch)
                steps.zero_grad()
                MSE(model(inputs), targets).backward()
                steps.step()
        for own in zip(world.parameters(), *(model.parameters() for model in models), strict=True):
            own[0].grad = own[0].detach() - torch.stack([value.detach() for value in own[1:]]).mean(dim=0)
        outer.step()
    return {f"layer{name}": value.detach() for name, value in world.named_parameters()}


@pytest.mark.parametrize("served", [True, False])
def test_local_sgd_averages_parameters_and_diloco_steps_outside(served):
    """Waves of 3 local steps; the mean of the parameters is an outer step of length 1."""
    workers = [worker_of("a", (0, 2, 4), wave=3), worker_of("b", (0, 4), wave=3)]
    plan = plan_of(*workers, served=served)
    batch = samples(3 * plan.samples_per_wave)
    for scheme, options in ((LOCAL_SGD, {"outer_lr": 1.0}), (DILOCO, {"outer_lr": 0.7, "momentum": 0.9})):
        team = team_of(plan, scheme=scheme)
        team.train(sharded(batch, plan, seed=None), num_waves=3)
        check_close(team.global_weights(), averaged(plan, batch, **options))


def test_presets_that_coincide_train_alike():
    """BSP is one step a wave of 1; SSP with D = 0 is WSP with nothing in flight."""
    workers = [worker_of("a", (0, 2, 4)), worker_of("b", (0, 4))]
    plan, stepped = plan_of(*workers), plan_of(*workers, local_step=LocalStep.WAVE)
    batch = samples(4 * plan.samples_per_wave)
    for one, other in (((plan, BSP), (stepped, None)), ((plan, SSP), (plan, None))):
        found = []
        for own, scheme in (one, other):
            team = team_of(own, scheme=scheme)
            team.train(sharded(batch, own), num_waves=4)
            found.append(team.global_weights())
        check_close(*found)
