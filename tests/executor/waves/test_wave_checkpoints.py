"""Checkpoints of virtual workers: continued exactly by the same plan, and begun from by any other."""

from functools import partial

import pytest
import torch

from stagecut.executor import checkpoint, load
from stagecut.executor.manual_plan import plan_of as pipeline_plan
from stagecut.executor.waves.loading import load_waves
from stagecut.executor.waves.setting.data import sharded
from stagecut.executor.waves.setting.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.messages.errors import BadInputError
from tests.executor import pool
from tests.executor.waves.wave_plans import MSE, check_close, layers, plan_of, samples, worker_of

ADAM = partial(torch.optim.Adam, lr=0.01)
WORKERS = (worker_of("a", (0, 2, 4), in_flight=2), worker_of("b", (0, 4), in_flight=2))


def loaded(plan):
    return load_waves(plan, layers(), MSE, ADAM)


def trained(plan, num_waves, rank=None):
    rank = rank or loaded(plan)
    rank.train(sharded(samples(12), plan), num_waves=num_waves)
    return rank


def test_training_of_one_worker_goes_on_as_if_it_had_never_stopped(tmp_path):
    """Two minibatches are in flight with versions of their own: 2 waves, a checkpoint, and 3 more are 5 waves."""
    plan = plan_of(worker_of("a", (0, 4), in_flight=2))
    place = checkpoint.save_waves(trained(plan, 2), tmp_path, extra={"seed": 7})
    assert place.name == "step-000002"
    rank = loaded(plan)
    assert checkpoint.restore_waves(rank, tmp_path) == {"seed": 7}
    check_close(trained(plan, 3, rank).global_weights(), trained(plan, 5).global_weights(), tolerance=0.0)


def pipeline():
    return load(pipeline_plan((0, 4), num_microbatches=1, micro_batch=2), layers(), MSE, ADAM)


def stepped(own, numbers):
    """The same steps as a worker with one minibatch in flight makes."""
    data = sharded(samples(12), SEQUENTIAL)
    for number in numbers:
        own.step(data(0, number))
    return {name: parameter.detach() for name, parameter in own.named_parameters().items()}


SEQUENTIAL = plan_of(worker_of("a", (0, 4), in_flight=1))
"""One minibatch at a time: plain training."""


def test_pipeline_goes_on_from_a_checkpoint_of_waves_and_the_other_way_round(tmp_path):
    """Adam's states come along: two steps here and two there are the four steps of either."""
    expected = stepped(pipeline(), [1, 2, 3, 4])
    checkpoint.save_waves(trained(SEQUENTIAL, 2), tmp_path / "waves")
    resumed = pipeline()
    checkpoint.restore(resumed, tmp_path / "waves")
    assert resumed.num_steps == 2
    check_close(stepped(resumed, [3, 4]), expected, tolerance=1e-12)

    half = pipeline()
    stepped(half, [3, 4])
    checkpoint.save(half, tmp_path / "steps")
    rank = loaded(SEQUENTIAL)
    checkpoint.restore_waves(rank, tmp_path / "steps")
    check_close(trained(SEQUENTIAL, 2, rank).global_weights(), stepped(half, [1, 2]), tolerance=1e-12)


def test_checkpoint_of_another_model_is_refused(tmp_path):
    checkpoint.save_waves(trained(SEQUENTIAL, 1), tmp_path)
    short = plan_of(worker_of("a", (0, 3), in_flight=1))
    with pytest.raises(BadInputError, match="layer 3 is 'layer3' there and missing here"):
        checkpoint.restore_waves(load_waves(short, layers(3), MSE, ADAM), tmp_path)


def saved_and_resumed(plan, folder):
    """Two waves, a checkpoint, and three more waves of a rank that has restored it; its weights at both times."""
    checkpoint.save_waves(trained(plan, 2), folder)
    rank = loaded(plan)
    checkpoint.restore_waves(rank, folder)
    return [arrays(rank.global_weights()), arrays(trained(plan, 3, rank).global_weights())]


def begun(plan, folder):
    """The weights of another plan's ranks after restoring, and that they can train."""
    rank = loaded(plan)
    checkpoint.restore_waves(rank, folder)
    found = arrays(rank.global_weights())
    trained(plan, 1, rank)
    return found


def arrays(weights):
    return weights and {name: value.cpu().numpy() for name, value in weights.items()}


def test_servers_and_stages_in_processes_resume_and_others_begin_with_their_weights(tmp_path):
    """Three stages and two servers resume exactly; workers that all-reduce begin with the servers' weights."""
    plan = plan_of(*WORKERS)
    half, whole = pool.run(saved_and_resumed, plan, tmp_path, world_size=5)[0]
    for weights, num_waves in ((half, 2), (whole, 5)):
        team = WaveTeam(plan, layers(), WaveTraining(loss_fn=MSE, optimizer=ADAM))
        team.train(sharded(samples(12), plan), num_waves=num_waves)
        found = {name: torch.from_numpy(value) for name, value in weights.items()}
        check_close(found, team.global_weights(), tolerance=1e-12)
    others = pool.run(begun, plan_of(*reversed(WORKERS), served=False), tmp_path, world_size=3)[0]
    assert {name: value.tolist() for name, value in others.items()} == {
        name: value.tolist() for name, value in half.items()
    }
