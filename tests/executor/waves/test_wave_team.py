"""Faults of a team, weights with buffers, data sets in parts."""

import pytest
import torch
from torch import nn

from stagecut.executor.ranks.failures import LossError
from stagecut.executor.waves.evaluation import mean_loss, outputs_of, whole_model
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.setting.schemes import BSP, LOCAL_SGD
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.messages.errors import BadInputError
from tests.executor.waves.wave_plans import MSE, WIDTH, layers, plan_of, samples, worker_of

WORKERS = (worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 1, 4), in_flight=2))


class Infinite(nn.Module):
    """Divides by what the first worker's minibatches never are."""

    def forward(self, state):
        return state / (state != 0).all()


def test_a_loss_that_is_not_finite_ends_all_ranks():
    """Minibatch 3 of worker 1 is all zeros; the message names the rank on which the loss was computed."""
    chain = [nn.Identity(), Infinite(), *layers(2)]
    team = WaveTeam(plan_of(*WORKERS), chain, WaveTraining(loss_fn=MSE))
    inputs, targets = samples(2)
    with pytest.raises(LossError, match=r"worker 1, stage 1\): the loss of minibatch 3 is nan"):
        team.train(lambda w, m: (inputs * ((w, m) != (1, 3)), targets), num_waves=3)


@pytest.mark.parametrize("served", [True, False])
def test_a_fault_of_one_worker_is_raised_and_nobody_hangs(served):
    """Worker 0 has no data for its second wave, for which worker 1 waits at its gate."""

    def data(worker, minibatch):
        if (worker, minibatch) == (0, 3):
            raise ValueError("no more samples")
        return samples(2)

    team = WaveTeam(plan_of(*WORKERS, served=served), layers(), WaveTraining(loss_fn=MSE))
    with pytest.raises(ValueError, match="no more samples"):
        team.train(data, num_waves=4)


def test_batches_of_another_size_are_refused():
    team = WaveTeam(plan_of(*WORKERS), layers(), WaveTraining(loss_fn=MSE))
    with pytest.raises(BadInputError, match="samples of the inputs must be 2, got 3"):
        team.train(lambda _worker, _minibatch: samples(3), num_waves=1)


@pytest.mark.parametrize(
    ("training", "message"),
    [
        (WaveTraining(loss_fn=MSE, scheme=BSP), r"worker 0, trained by bsp: wave must be 1, got 2"),
        (WaveTraining(loss_fn=MSE, scheme=LOCAL_SGD), r"local-sgd: clock_distance must be 0, got 1"),
        (WaveTraining(), r"pass loss_fn"),
    ],
)
def test_what_does_not_go_together_is_refused(training, message):
    with pytest.raises(BadInputError, match=message):
        WaveTeam(plan_of(*WORKERS, clock_distance=1), layers(), training)


def test_global_weights_make_a_whole_model():
    """Parameters of the servers, running means of worker 0; a loss like that of plain torch."""
    chain = [*layers(3), nn.Sequential(nn.BatchNorm1d(WIDTH)).double()]
    plan = plan_of(*WORKERS)
    team = WaveTeam(plan, chain, WaveTraining(loss_fn=MSE))
    inputs, targets = samples(16)
    team.train(sharded((inputs, targets), plan), num_waves=3)
    weights = team.global_weights()
    model = nn.Sequential(*chain)
    model.load_state_dict({name.removeprefix("layer"): value for name, value in weights.items()})
    expected = model.eval()(inputs)
    assert model[3][0].num_batches_tracked == 3 * 2  # of worker 0 alone
    assert torch.equal(outputs_of(whole_model(team.execution, weights), inputs), expected)
    assert mean_loss(team.execution, weights, (inputs, targets)) == MSE(expected, targets).item()


def test_every_sample_is_taken_once_an_epoch():
    """Waves of 4 + 4 samples; 24 are three waves, and the next epoch has another order."""
    plan = plan_of(*WORKERS)
    numbers = torch.arange(24)
    data = sharded((numbers, numbers), plan, seed=5)

    def epoch(first):
        minibatches = range(first, first + 6)
        return [data(worker, minibatch)[0].tolist() for minibatch in minibatches for worker in (0, 1)]

    once, again = ([number for batch in epoch(first) for number in batch] for first in (1, 7))
    assert sorted(once) == sorted(again) == numbers.tolist()
    assert once != again
    assert data(1, 3)[1].tolist() == data(1, 3)[0].tolist()
    in_order = sharded((numbers, numbers), plan, seed=None)
    assert [in_order(*place)[0].tolist() for place in ((0, 1), (0, 2), (1, 1), (1, 2), (0, 3))] == [
        [0, 1],
        [2, 3],
        [4, 5],
        [6, 7],
        [8, 9],
    ]
