"""Gradients clipped to the norm of the whole model, which no stage has by itself."""

import random
from collections import deque
from functools import partial

import pytest
import torch
from torch import nn

from stagecut.executor.play.build import build_layer, share_tied
from stagecut.executor.play.stage import StageModule, from_state
from stagecut.executor.ranks.failures import LossError
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.waves import LocalStep
from tests.executor.tied_chain import NUM_LAYERS, TOKENS, VOCABULARY, chain
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, synchronous_plan, worker_of

MOMENTUM = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
LIMIT = 0.05
"""Gradients of these layers have norms of about 0.5."""


def parts_of(batch, size):
    return list(zip(*(torch.split(tensor, size) for tensor in batch), strict=True))


def clipped(model, loss_fn, batches, *, lag=0):
    """Plain steps with gradients clipped by torch, each as many batches old as `lag`, and their norms."""
    optimizer, norms = MOMENTUM(model.parameters()), []
    old = deque([{name: value.detach().clone() for name, value in model.named_parameters()}] * (lag + 1))
    for inputs, targets in batches:
        optimizer.zero_grad()
        loss_fn(torch.func.functional_call(model, leaves := leaves_of(old.popleft()), (inputs,)), targets).backward()
        for name, value in model.named_parameters():
            value.grad = leaves[name].grad
        norms.append(float(nn.utils.clip_grad_norm_(model.parameters(), LIMIT)))
        optimizer.step()
        old.append({name: value.detach().clone() for name, value in model.named_parameters()})
    return norms


def leaves_of(tensors):
    return {name: tensor.clone().requires_grad_() for name, tensor in tensors.items()}


def trained(plan, *, num_waves, batch, made=layers, loss_fn=MSE):
    training = WaveTraining(loss_fn=loss_fn, optimizer=MOMENTUM, clip_norm=LIMIT)
    team = WaveTeam(plan, made(), training)
    team.train(sharded(batch, plan, seed=None), num_waves=num_waves)
    return team.global_weights()


def named(model):
    return {f"layer{name}": value.detach() for name, value in model.named_parameters()}


@pytest.mark.parametrize("seed", range(4))
def test_with_one_step_a_wave_the_norm_is_that_of_a_single_process(seed):
    """Unlike workers, over servers or by all-reduce: the norm is that of the mean over all their samples."""
    plan = synchronous_plan(random.Random(200 + seed), num_layers=4)
    batch, model = samples(3 * plan.samples_per_wave), nn.Sequential(*layers())
    norms = clipped(model, MSE, parts_of(batch, plan.samples_per_wave))
    assert min(norms) > LIMIT
    check_close(trained(plan, num_waves=3, batch=batch), named(model))


def test_waves_apart_are_clipped_where_all_stages_get_the_same():
    """By all-reduce and with D = 1 the gate of wave c has exactly wave c - 2: gradients are two steps old."""
    workers = [worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 1, 4), minibatch=1, in_flight=3)]
    plan = plan_of(*workers, served=False, local_step=LocalStep.WAVE, clock_distance=1)
    batch, model = samples(5 * plan.samples_per_wave), nn.Sequential(*layers())
    clipped(model, MSE, parts_of(batch, plan.samples_per_wave)[:4], lag=1)
    check_close(trained(plan, num_waves=5, batch=batch), named(model))


@pytest.mark.parametrize(("cuts", "in_flight"), [((0, 4), 1), ((0, 2, 4), 4), ((0, 1, 2, 4), 4)])
def test_a_worker_clips_each_of_its_minibatches(cuts, in_flight):
    """The last stage steps when the first one's part of the norm is there, in time for minibatch p + N_m."""
    plan = plan_of(worker_of("a", cuts, in_flight=in_flight))
    batch, model = samples(2 * 3 * in_flight), nn.Sequential(*layers())
    assert min(clipped(model, MSE, parts_of(batch, 2), lag=in_flight - 1)) > LIMIT
    check_close(trained(plan, num_waves=3, batch=batch), named(model))


def without_weights():
    """The second of four layers has none."""
    first, _, *others = layers()
    return [first, nn.Tanh(), *others]


@pytest.mark.parametrize("local_step", list(LocalStep))
def test_a_stage_without_weights_takes_part(local_step):
    plan = plan_of(worker_of("a", (0, 1, 2, 4), in_flight=1), local_step=local_step)
    batch, model = samples(6), nn.Sequential(*without_weights())
    clipped(model, MSE, parts_of(batch, 2))
    check_close(trained(plan, num_waves=3, batch=batch, made=without_weights), named(model))


@pytest.mark.parametrize("local_step", list(LocalStep))
def test_a_tied_weight_counts_once(local_step):
    """Its copies are on the first and the last of three stages, or both on the only one."""
    torch.set_default_dtype(torch.float64)
    try:
        tokens = torch.randint(VOCABULARY, (24, TOKENS), generator=torch.Generator().manual_seed(3))
        batch = tokens, tokens.flip(1)
        found = [
            trained(
                plan_of(worker_of("a", cuts, in_flight=3), local_step=local_step),
                num_waves=3,
                batch=batch,
                made=chain,
                loss_fn=None,
            )
            for cuts in ((0, NUM_LAYERS), (0, 2, 4, NUM_LAYERS))
        ]
        model = Whole(chain())
        size, lag = (6, 0) if local_step is LocalStep.WAVE else (2, 2)
        assert min(clipped(model, chain().loss, parts_of([tensor[:18] for tensor in batch], size), lag=lag)) > LIMIT
    finally:
        torch.set_default_dtype(torch.float32)
    check_close(*found)
    expected = {name: value.detach() for name, value in model.stage.global_parameters()}
    check_close({name: found[0][name] for name in expected}, expected)


class Whole(nn.Module):
    """All layers of a chain, tied weights being one."""

    def __init__(self, chain):
        super().__init__()
        built = [build_layer(chain, index, seed=0) for index in range(len(chain.layers))]
        self.stage = StageModule(0, names=[layer.name for layer in chain.layers], layers=built, recompute=False)
        share_tied(chain, [self.stage])

    def forward(self, tokens):
        return from_state(self.stage((tokens,)))


def test_nan_is_found_before_it_reaches_the_weights():
    """The loss is finite, its gradient is not: the root of zero has an infinite slope."""
    training = WaveTraining(loss_fn=lambda output, _: (output * 0).square().sum().sqrt(), clip_norm=LIMIT)
    plan = plan_of(worker_of("a", (0, 2, 4)))
    team = WaveTeam(plan, layers(), training)
    with pytest.raises(LossError, match=r"worker 0, stage \d\): the gradient norm of minibatch 1 is nan"):
        team.train(sharded(samples(2), plan), num_waves=1)


def test_waves_that_come_at_different_times_are_not_clipped():
    workers = [worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 4), in_flight=2)]
    plan = plan_of(*workers, local_step=LocalStep.WAVE, clock_distance=1)
    with pytest.raises(BadInputError, match="clip_norm must be None, because with one step a wave and D > 0 servers"):
        WaveTeam(plan, layers(), WaveTraining(loss_fn=MSE, clip_norm=LIMIT))
