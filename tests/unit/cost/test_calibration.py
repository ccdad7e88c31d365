"""Correction factors on a model of two kinds of layers, by hand.

On the device type `gpu` an attention layer takes 1 s forward and 2 s backward per sample, a
feed-forward layer 2 s and 4 s.
"""

from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.run_record import StageFigures
from stagecut.planner.cost.calibration import calibrate
from tests.runs import RUN, STAGE


def _layer(name, kind, seconds, *, degrees=(1,)):
    times = tuple(
        TimeTable(
            device_type=device_type,
            tensor_parallel=degree,
            samples=(1, 2),
            forward_s=(seconds / degree, 2 * seconds / degree),
            backward_s=(2 * seconds / degree, 4 * seconds / degree),
        )
        for device_type in ("gpu", "other")
        for degree in degrees
    )
    return Layer(name=name, kind=kind, times=times, tensor_parallel_bytes=1.0)


PROFILE = ModelProfile(
    name="three",
    layers=(_layer("a", "attention", 1.0), _layer("f", "ffn", 2.0), _layer("g", "ffn", 2.0)),
)


def _stage(start, stop, *, predicted, measured, **more):
    """Forward and backward seconds of one sample."""
    return replace(
        STAGE,
        start=start,
        stop=stop,
        samples_per_replica=1.0,
        predicted=StageFigures(forward_s=predicted[0], backward_s=predicted[1]),
        measured=StageFigures(forward_s=measured[0], backward_s=measured[1]),
        **more,
    )


def _run(*stages):
    return replace(RUN, stages=stages)


def _factors(calibration):
    return {(f.device_type, f.kind): (f.forward, f.backward) for f in calibration.factors}


def test_stages_of_one_kind_give_its_factors():
    """Attention takes 1.2 s and 1.8 s where 1 s and 2 s were predicted, two feed-forward layers 4.4 s and 8 s."""
    run = _run(_stage(0, 1, predicted=(1, 2), measured=(1.2, 1.8)), _stage(1, 3, predicted=(4, 8), measured=(4.4, 8.0)))
    found = _factors(calibrate(PROFILE, [run], ridge=1e-12))
    assert found["gpu", "attention"] == pytest.approx((1.2, 0.9))
    assert found["gpu", "ffn"] == pytest.approx((1.1, 1.0))


def test_corrected_tables_are_multiplied_on_that_device_type_only():
    run = _run(_stage(0, 3, predicted=(5, 10), measured=(6, 10)))
    corrected = calibrate(PROFILE, [run]).profile
    factors = _factors(calibrate(PROFILE, [run]))
    for before, after in zip(PROFILE.layers, corrected.layers, strict=True):
        forward, _ = factors["gpu", before.kind]
        assert after.table("gpu").forward_s == pytest.approx([forward * s for s in before.table("gpu").forward_s])
        assert after.table("other") == before.table("other")


def test_kinds_that_the_runs_cannot_tell_apart_share_the_correction():
    """One stage of everything, 20 % slower: the least change in all is in proportion to what each kind takes."""
    run = _run(_stage(0, 3, predicted=(5, 10), measured=(6, 12)))
    found = _factors(calibrate(PROFILE, [run], ridge=1e-9))
    attention, ffn = found["gpu", "attention"][0], found["gpu", "ffn"][0]
    assert attention + 4 * ffn == pytest.approx(6.0)
    assert (ffn - 1) == pytest.approx(4 * (attention - 1))


def test_recomputation_counts_with_the_factor_of_forwards():
    """Backward 2 x 1 + 1 x 1.5 = 3.5 s for attention that is half as fast forward as thought, recomputed."""
    run = _run(
        _stage(0, 1, predicted=(1, 3), measured=(1.5, 3.5), recompute=True),
        _stage(1, 3, predicted=(4, 8), measured=(4, 8)),
    )
    assert _factors(calibrate(PROFILE, [run], ridge=1e-12))["gpu", "attention"] == pytest.approx((1.5, 1.0))


def test_backwards_may_have_a_size_of_their_own():
    """Forwards of one sample, 1.5 s for 1 s; backwards of two, 2 x 1.5 + 4 x 2 = 11 s for 2 + 4 s, recomputed."""
    run = _run(
        _stage(0, 1, predicted=(1, 6), measured=(1.5, 11), recompute=True, samples_per_backward=2.0),
        _stage(1, 3, predicted=(4, 8), measured=(4, 8)),
    )
    assert _factors(calibrate(PROFILE, [run], ridge=1e-12))["gpu", "attention"] == pytest.approx((1.5, 2.0))


def test_collectives_are_not_corrected():
    """Two devices share the layer: 0.5 s each of 1 s, and 0.5 s for the collective; measured 0.6 + 0.5 s."""
    run = _run(
        _stage(0, 1, predicted=(1.0, 1.5), measured=(1.1, 1.5), tensor_parallel=2),
        _stage(1, 3, predicted=(2.5, 4.5), measured=(2.5, 4.5), tensor_parallel=2),
    )
    assert _factors(calibrate(PROFILE, [run], ridge=1e-12))["gpu", "attention"] == pytest.approx((1.2, 1.0))


def test_factors_stay_above_their_least_value():
    run = _run(_stage(0, 1, predicted=(1, 2), measured=(1e-3, 2)), _stage(1, 3, predicted=(4, 8), measured=(4, 8)))
    assert _factors(calibrate(PROFILE, [run], ridge=1e-6))["gpu", "attention"][0] == pytest.approx(0.1)


def test_device_types_are_fitted_apart():
    run = _run(
        _stage(0, 1, predicted=(1, 2), measured=(1.2, 2)),
        _stage(0, 1, predicted=(1, 2), measured=(0.8, 2), device_type="other"),
    )
    found = _factors(calibrate(PROFILE, [run], ridge=1e-12))
    assert (found["gpu", "attention"][0], found["other", "attention"][0]) == pytest.approx((1.2, 0.8))


def test_error_before_and_after_is_that_of_forwards_and_backwards():
    """Forward 20 % and backward 0 % off before: median 10 %, worst 20 %; next to nothing after."""
    calibration = calibrate(PROFILE, [_run(_stage(0, 3, predicted=(5, 10), measured=(6, 10)))], ridge=1e-9)
    assert calibration.before.count == 2
    assert (calibration.before.median, calibration.before.worst) == pytest.approx((0.1, 0.2))
    assert calibration.after.worst < 1e-6
    assert calibration.num_runs == 1


def test_runs_that_agree_with_the_profile_change_nothing():
    run = _run(_stage(0, 1, predicted=(1, 2), measured=(1, 2)), _stage(1, 3, predicted=(4, 8), measured=(4, 8)))
    assert all(pair == pytest.approx((1, 1)) for pair in _factors(calibrate(PROFILE, [run])).values())


def test_layers_without_measured_times_are_refused():
    bare = replace(PROFILE, layers=(*PROFILE.layers, Layer(name="head")))
    with pytest.raises(BadInputError, match="layer 'head' has no measured times on 'gpu'"):
        calibrate(bare, [_run(_stage(0, 1, predicted=(1, 2), measured=(1, 2)))])


def test_no_runs_are_refused():
    with pytest.raises(BadInputError, match="no run"):
        calibrate(PROFILE, [])
