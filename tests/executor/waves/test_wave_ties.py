"""Weights that several stages of a worker hold."""

from functools import partial

import pytest
import torch

from stagecut.executor.play.reference import reference_step
from stagecut.executor.waves.data import sharded
from stagecut.executor.waves.execution import WaveTraining
from stagecut.executor.waves.team import WaveTeam
from stagecut.planner.core.waves import LocalStep
from tests.executor.tied_chain import NUM_LAYERS, TOKENS, VOCABULARY, chain
from tests.executor.waves.wave_plans import check_close, plan_of, worker_of

SGD = partial(torch.optim.SGD, lr=1.0)
ADAM = partial(torch.optim.Adam, lr=0.01)
OWNER, COPY = "embedding.tokens.weight", "head.tokens.weight"


@pytest.fixture(autouse=True)
def double_precision():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def texts(count):
    tokens = torch.randint(VOCABULARY, (count, TOKENS), generator=torch.Generator().manual_seed(3))
    return tokens, tokens.flip(1)


def trained(plan, optimizer, *, num_waves):
    team = WaveTeam(plan, chain(), WaveTraining(optimizer=optimizer))
    reports = team.train(sharded(texts(24), plan, seed=None), num_waves=num_waves)
    weights = team.global_weights()
    assert torch.equal(weights[OWNER], weights[COPY])
    return [report.losses for report in reports if report.losses], weights


@pytest.mark.parametrize("served", [True, False])
def test_a_step_has_the_gradients_of_one_matrix(served):
    """Three workers with the copies on one, two and three stages; a step of length 1 is the gradient."""
    cuts = [(0, NUM_LAYERS), (0, 2, NUM_LAYERS), (0, 1, 3, NUM_LAYERS)]
    workers = [worker_of(f"w{len(own)}", own, minibatch=1, in_flight=len(own)) for own in cuts]
    plan = plan_of(*workers, served=served, local_step=LocalStep.WAVE)
    _, weights = trained(plan, SGD, num_waves=1)
    batch = tuple(tensor[: plan.samples_per_wave] for tensor in texts(24))
    expected = reference_step(chain(), batch, chain().loss, seed=0).gradients
    before = WaveTeam(plan, chain(), WaveTraining()).global_weights()
    check_close({name: before[name] - weights[name] for name in expected}, expected)


@pytest.mark.parametrize("in_flight", [1, 4])
def test_a_worker_of_three_stages_trains_like_one_of_a_single_stage(in_flight):
    """The last stage makes step p when the first one's gradients are there, in time for minibatch p + N_m."""
    found = [
        trained(plan_of(worker_of("a", cuts, in_flight=in_flight)), ADAM, num_waves=3)
        for cuts in ((0, NUM_LAYERS), (0, 2, 4, NUM_LAYERS))
    ]
    (losses, weights), (others, values) = found
    assert losses == [pytest.approx(own, abs=1e-9) for own in others]
    check_close(weights, values)


def test_copies_stay_equal_between_workers():
    """Two workers with a step after each minibatch: what each stage pulls of its copy is the same."""
    workers = [worker_of("a", (0, 2, NUM_LAYERS), in_flight=2), worker_of("b", (0, 1, 3, NUM_LAYERS), in_flight=2)]
    (_, served), (_, summed) = (
        trained(plan_of(*workers, served=served), ADAM, num_waves=4) for served in (True, False)
    )
    check_close(served, summed)
