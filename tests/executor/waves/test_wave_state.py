"""A training that stops at the end of a wave goes on as if it had not."""

from functools import partial

import pytest
import torch

from stagecut.executor.transport.objects import decoded, encoded
from stagecut.executor.waves.data import sharded
from stagecut.executor.waves.execution import WaveTraining
from stagecut.executor.waves.schemes import DILOCO
from stagecut.executor.waves.state import optimizer_states, restore, restore_shard, shard_state, start_from, state_of
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, worker_of

ADAM = partial(torch.optim.Adam, lr=0.01)
STEPS = partial(torch.optim.lr_scheduler.StepLR, step_size=3)
CUTS = {"a": (0, 2, 4), "b": (0, 1, 3, 4)}


def team_of(plan, scheme=None, scheduler=STEPS):
    return WaveTeam(plan, layers(), WaveTraining(loss_fn=MSE, optimizer=ADAM, scheduler=scheduler, scheme=scheme))


def train(team, num_waves):
    plan = team.execution.plan
    return [report.losses for report in team.train(sharded(samples(24), plan), num_waves=num_waves)]


def saved(team):
    """As it would be sent or written: nothing but tensors, numbers, text and containers."""
    state = [state_of(worker) for worker in team.workers], [shard_state(shard) for shard, _ in team.shards.values()]
    return decoded(encoded(state))


def resumed(team, state):
    for worker, own in zip(team.workers, state[0], strict=True):
        restore(worker, own)
    for (shard, _), own in zip(team.shards.values(), state[1], strict=True):
        restore_shard(shard, own)
    return team


@pytest.mark.parametrize(
    ("in_flight", "served", "distance", "step", "scheme"),
    [
        (4, True, 0, LocalStep.MINIBATCH, None),
        (4, False, 2, LocalStep.MINIBATCH, None),
        (2, True, 0, LocalStep.WAVE, None),
        (2, False, 1, LocalStep.WAVE, None),
        (1, True, 0, LocalStep.MINIBATCH, DILOCO),
        (1, False, 1, LocalStep.MINIBATCH, DILOCO),
    ],
)
def test_a_restored_plan_goes_on_to_the_last_digit(in_flight, served, distance, step, scheme):
    """Versions in flight, updates under way, momentum inside and outside, learning rates."""
    workers = [worker_of(name, cuts, in_flight=in_flight) for name, cuts in CUTS.items()]
    plan = plan_of(*workers, served=served, clock_distance=distance, local_step=step)
    whole, half = team_of(plan, scheme), team_of(plan, scheme)
    train(half, 3)
    state = saved(half)
    later = resumed(team_of(plan, scheme), state)
    train(whole, 3)
    assert train(whole, 3) == train(later, 3) == train(half, 3)
    for name, value in whole.global_weights().items():
        assert torch.equal(later.global_weights()[name], value)


def test_weights_and_optimizer_states_go_on_under_another_plan():
    """One step a wave of four samples, first by two workers of two and three stages, then by one of a single stage."""
    workers = [worker_of(name, cuts, in_flight=1) for name, cuts in CUTS.items()]
    plan, other = (plan_of(*own, local_step=LocalStep.WAVE) for own in (workers, [worker_of("c", (0, 4), minibatch=4)]))
    whole, before, after = (team_of(own, scheduler=None) for own in (plan, plan, other))
    train(whole, 4)
    train(before, 2)
    states = {name: own for worker in before.workers for name, own in optimizer_states(worker).items()}
    for worker in after.workers:
        start_from(worker, before.global_weights(), states)
    later = sharded(samples(24), other)
    after.train(lambda worker, minibatch: later(worker, minibatch + 2), num_waves=2)
    check_close(after.global_weights(), whole.global_weights())
