"""Every stage and every parameter server in a process of its own."""

from functools import partial

import pytest
import torch

from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from tests.executor import pool
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, worker_of

ADAM = partial(torch.optim.Adam, lr=0.01)
WORKERS = (worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 4), in_flight=2))


def trained(plans):
    """Train on one rank, in two calls; its reports, and the weights on rank 0."""
    answers = []
    for plan in plans:
        rank = load_waves(plan, layers(), MSE, ADAM)
        data = sharded(samples(12), plan)
        reports = [rank.train(data, num_waves=2), rank.train(data, num_waves=3)]
        weights = rank.global_weights()
        answers.append((reports, weights and {name: value.cpu().numpy() for name, value in weights.items()}))
    return answers


def in_threads(plan):
    team = WaveTeam(plan, layers(), WaveTraining(loss_fn=MSE, optimizer=ADAM))
    return team.train(sharded(samples(12), plan), num_waves=5), team.global_weights()


@pytest.mark.parametrize("served", [True, False])
def test_processes_train_like_threads(served):
    """Two unlike workers on three devices and two servers over gloo: the losses and weights of one process."""
    plan = plan_of(*WORKERS, served=served)
    answers = pool.run(trained, [plan], world_size=5 if served else 3)
    reports, weights = in_threads(plan)
    for rank, expected in enumerate(reports):
        own = answers[rank][0][0]
        assert [loss for report in own for loss in report.losses] == pytest.approx(expected.losses, abs=1e-12)
        assert own[1].clock == expected.clock
        assert own[1].global_staleness == expected.global_staleness
    found = answers[0][0][1]
    check_close({name: torch.from_numpy(value) for name, value in found.items()}, weights, tolerance=1e-12)
    assert all(answer[0][1] is None for answer in answers[1:])
    assert [answer[0][0][1].clock for answer in answers[3:]] == [5, 5][: len(answers) - 3]
