"""Virtual workers in dilated mode: never faster than simulated, and the numbers of full speed."""

from functools import partial

import pytest
import torch

from stagecut.executor.dilated.wave_dilation import WaveDilation
from stagecut.executor.waves.data import sharded
from stagecut.executor.waves.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.wave_costs import WaveCosts
from stagecut.planner.simulator.waves.network import network_of
from stagecut.planner.simulator.waves.play import Play
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, worker_of
from tests.wave_workers import served, worker_costs

SGD = partial(torch.optim.SGD, lr=0.1)
SHARED = ("host0:nic-in",)
NUM_WAVES = 4
NO_FASTER = 1 - 1e-6


def costs_of(plan):
    """Milliseconds; both workers' activations queue for one link."""

    def costs(index, worker):
        return worker_costs(
            worker,
            forward_s=[0.002 + 0.001 * index] * worker.num_stages,
            backward_s=[0.004] * worker.num_stages,
            update_s=0.001,
            transfer_s=0.002,
            forward_links=(SHARED,) * (worker.num_stages - 1),
            exchanges=served(worker, plan.owners, push_s=0.003, pull_s=0.002) if plan.owners else None,
            all_reduce_s=0.0 if plan.owners else 0.004,
        )

    return WaveCosts(plan=plan, workers=tuple(costs(*own) for own in enumerate(plan.workers)))


@pytest.mark.parametrize("is_served", [True, False])
@pytest.mark.parametrize("step", list(LocalStep))
def test_waves_take_as_long_as_simulated(is_served, step):
    """Two unlike workers, over servers or by all-reduce, with a step a minibatch or a wave; D = 0."""
    workers = [worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 1, 4), in_flight=2)]
    plan = plan_of(*workers, served=is_served, local_step=step)
    costs = costs_of(plan)
    play = Play(network_of(costs), num_waves=NUM_WAVES)
    play.run(NUM_WAVES)
    dilation = WaveDilation(costs)
    training = WaveTraining(loss_fn=MSE, optimizer=SGD)
    dilated = WaveTeam(plan, layers(), training, pace=dilation.pace, channel=dilation.channel)
    full = WaveTeam(plan, layers(), training)
    for team in (dilated, full):
        reports = team.train(sharded(samples(16), plan), num_waves=NUM_WAVES)
        if team is dilated:
            took_s = max(report.end_s for report in reports) - min(report.start_s for report in reports)
            assert took_s >= NO_FASTER * play.wave_ends[0][-1]
    check_close(dilated.global_weights(), full.global_weights(), tolerance=1e-12)
