"""What fills the memory of virtual workers."""

import pytest

from stagecut.planner.core.waves import LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_memory_parts import wave_memory_parts
from tests.wave_files import tiny_plan, tiny_problem


@pytest.mark.parametrize("local_step", LocalStep)
@pytest.mark.parametrize("in_flight", [1, 3])
def test_parts_add_up_to_the_memory(in_flight, local_step):
    model, plan = WaveCostModel(tiny_problem()), tiny_plan(in_flight=in_flight, local_step=local_step)
    for own in model.plan(plan).workers:
        parts = wave_memory_parts(model, plan, own)
        assert [each.total_bytes for each in parts] == pytest.approx(own.memory_bytes.tolist())


def test_weights_are_all_versions_and_gradients_hold_the_update_too():
    """With three minibatches in flight there are three versions; with one step a wave there is one, and no update."""
    problem = tiny_problem()
    model, optimizer = WaveCostModel(problem), problem.job.optimizer
    for local_step, versions, sums in ((LocalStep.MINIBATCH, 3, 2), (LocalStep.WAVE, 1, 1)):
        plan = tiny_plan(in_flight=3, local_step=local_step)
        (first, _), stage = wave_memory_parts(model, plan, model.plan(plan).workers[0]), plan.workers[0].stages[0]
        params = model.layer_params[: stage.stop].sum()
        assert first.weights_bytes == pytest.approx(versions * params * optimizer.weight_bytes)
        assert first.gradients_bytes == pytest.approx(sums * params * optimizer.gradient_bytes)
        assert first.optimizer_bytes == pytest.approx(params * optimizer.state_bytes)
