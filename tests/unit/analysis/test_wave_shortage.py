"""Why no virtual worker fits is told in bytes."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.analysis.wave_shortage import wave_shortage
from stagecut.planner.core.job import Optimizer, Recompute, WaveChoices
from stagecut.planner.core.problem import Problem
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.io.files.job import read_job
from stagecut.planner.io.files.profile import read_profile

TINY = Path(__file__).parents[3] / "examples" / "tiny"


@pytest.fixture(scope="module")
def problem():
    """Six layers with minibatches of 4; devices of 16 GB; 2 bytes of weights and gradients, no state."""
    job = read_job(TINY / "job.yaml")
    optimizer = Optimizer(name="plain", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=0.0)
    waves = WaveChoices(in_flight=3)
    job = replace(job, global_batch=4, micro_batches=(4,), optimizer=optimizer, recompute=Recompute.NEVER, waves=waves)
    return Problem(model=read_profile(TINY / "profile.yaml"), cluster=read_cluster(TINY / "cluster.yaml"), job=job)


def _with_first_layer(problem, **values):
    first, *others = problem.model.layers
    return replace(problem, model=replace(problem.model, layers=(replace(first, **values), *others)))


def test_a_layer_that_fits_nowhere_is_named_with_what_is_short(problem):
    """1e9 parameters: weights, gradients, 2 more versions of the weights and the update take 2 + 2 + 2 x 2 + 2 = 10 GB;
    4 samples save 3 GB each."""
    large = _with_first_layer(problem, params_bytes=2e9, saved_bytes=3e9, working_bytes=0.0)
    told = wave_shortage(large)
    assert told.startswith("with 3 minibatches of 4 in flight, layer 'embedding' alone needs 22 GB on ")
    assert told.endswith(", which has 16 GB: 6 GB short")


def test_layers_that_fit_only_one_by_one_are_added_up(problem):
    """10 bytes per parameter, as above, for 1.4e9 of them in the first layer and the rest of the model."""
    others = sum(layer.params_bytes for layer in problem.model.layers[1:]) / 2
    told = wave_shortage(_with_first_layer(problem, params_bytes=2.8e9, saved_bytes=0.0, working_bytes=0.0))
    kept = f"{10 * (1.4e9 + others) / 1e9:.1f} GB"
    assert told == (
        f"with 3 minibatches of 4 in flight, every worker keeps {kept} besides activations; "
        "a device has: V100 16 GB, T4 16 GB"
    )
