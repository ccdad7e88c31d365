"""Known factors are found again in records made with them."""

import itertools
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import DeviceType
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.run_record import StageFigures
from stagecut.planner.cost.calibration import calibrate
from stagecut.planner.cost.layer_times import layer_times
from tests.runs import RUN, STAGE

KINDS = ("embedding", "attention", "ffn", "head")


def _profile(rng):
    """Embedding, 1 to 5 blocks of attention and feed-forward, head; times at 1, 2 and 4 samples."""
    kinds = ["embedding", *["attention", "ffn"] * int(rng.integers(1, 6)), "head"]
    return ModelProfile(name="m", layers=tuple(_layer(index, kind, rng) for index, kind in enumerate(kinds)))


def _layer(index, kind, rng):
    rising = [np.cumsum(rng.uniform(0.5, 2.0, 3)).tolist() for _ in range(2)]
    times = TimeTable(device_type="gpu", samples=(1, 2, 4), forward_s=tuple(rising[0]), backward_s=tuple(rising[1]))
    return Layer(name=f"layer{index}", kind=kind, times=(times,))


def _stage_s(profile, stage, forward, backward):
    """Forward and backward of a stage with the factors of every kind."""
    device = DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=1.0)
    seconds = layer_times(profile, device, stage.samples_per_replica)
    layers = range(stage.start, stage.stop)
    forward_s = sum(forward[profile.layers[i].kind] * float(seconds[0][i]) for i in layers)
    backward_s = sum(backward[profile.layers[i].kind] * float(seconds[1][i]) for i in layers)
    return forward_s, backward_s + (forward_s if stage.recompute else 0.0)


def _record(profile, rng, forward, backward, noise):
    """A run cut at random places."""
    num_layers = len(profile.layers)
    cuts = np.flatnonzero(rng.random(num_layers - 1) < 0.5) + 1
    ends = [0, *cuts.tolist(), num_layers]
    ones = dict.fromkeys(KINDS, 1.0)
    stages = []
    for start, stop in itertools.pairwise(ends):
        samples, recompute = float(rng.choice([1.0, 1.5, 4.0])), bool(rng.random() < 0.3)
        stage = replace(STAGE, start=start, stop=stop, samples_per_replica=samples, recompute=recompute)
        predicted = _stage_s(profile, stage, ones, ones)
        measured = [s * (1 + noise * rng.standard_normal()) for s in _stage_s(profile, stage, forward, backward)]
        stages.append(
            replace(
                stage,
                predicted=StageFigures(forward_s=predicted[0], backward_s=predicted[1]),
                measured=StageFigures(forward_s=measured[0], backward_s=measured[1]),
            )
        )
    return replace(RUN, stages=tuple(stages))


def _setting(seed, *, noise, runs):
    rng = np.random.default_rng(seed)
    profile = _profile(rng)
    forward, backward = (dict(zip(KINDS, rng.uniform(0.7, 1.5, len(KINDS)).tolist(), strict=True)) for _ in range(2))
    return profile, forward, backward, [_record(profile, rng, forward, backward, noise) for _ in range(runs)]


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_exact_records_give_the_factors_back(seed):
    """Twelve random cuts tell the kinds apart; the pull towards 1 is let go."""
    profile, forward, backward, runs = _setting(seed, noise=0.0, runs=12)
    for factor in calibrate(profile, runs, ridge=1e-12).factors:
        np.testing.assert_allclose(
            (factor.forward, factor.backward), (forward[factor.kind], backward[factor.kind]), rtol=1e-5
        )


@given(st.integers(0, 10**6))
@settings(max_examples=40)
def test_noisy_records_give_stage_times_within_the_noise(seed):
    """Noise of 1 %: what is left is noise, not the 30 to 50 % that the factors make."""
    profile, _, _, runs = _setting(seed, noise=0.01, runs=12)
    calibration = calibrate(profile, runs)
    assert calibration.after.median < 0.02
    assert calibration.after.median <= calibration.before.median
    assert calibration.after.worst < 0.08


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_the_order_of_runs_changes_nothing(seed):
    profile, _, _, runs = _setting(seed, noise=0.01, runs=4)
    first, second = calibrate(profile, runs), calibrate(profile, runs[::-1])
    for one, other in zip(first.factors, second.factors, strict=True):
        np.testing.assert_allclose((one.forward, one.backward), (other.forward, other.backward), rtol=1e-9)
