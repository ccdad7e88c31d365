"""Profiles from measurements made up by hand."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from stagecut.executor.measure.inspection import ChainFacts, LayerFacts
from stagecut.executor.measure.measured_profile import check_same_layers, measured_profile, with_times
from stagecut.executor.measure.profile_model import ModelMeasurement, size_times
from stagecut.executor.measure.timings import KINDS, Pass, Timing, summarize
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.precision import Precision

CLEAN, DIRTY = 0.0, 0.5


def facts(name, **changes):
    whole = LayerFacts(
        name=name,
        kind="Linear",
        num_params=10,
        num_shared_params=0,
        forward_flops=100.0,
        saved_bytes=8.0,
        output_bytes=16.0,
        working_bytes=4.0,
        is_shareable=False,
        allocated_bytes=0.0,
    )
    return replace(whole, **changes)


def times_of(samples, *, whole, layers, share=CLEAN, whole_share=CLEAN):
    """One timing of each kind; a backward takes twice as long."""
    found = {}
    for kind in KINDS:
        seconds = (whole,) if kind.passed is Pass.WHOLE else layers
        factor = 1 if kind.is_forward else 2
        timing = Timing(
            seconds=tuple(factor * each for each in seconds),
            run_queue_share=whole_share if kind.passed is Pass.WHOLE else share,
        )
        found[kind] = [timing]
    return size_times(samples, [found])


def measurement(**changes):
    whole = ModelMeasurement(
        name="mine",
        device_type="box",
        device_title="a box",
        facts=ChainFacts(layers=(facts("a"), facts("b"), facts("c", output_bytes=0.0)), skip_edges=()),
        first_layer=0,
        times=(
            times_of(1, whole=6.0, layers=(1.0, 2.0, 4.0)),
            times_of(2, whole=14.0, layers=(2.0, 4.0, 8.0)),
        ),
        update=summarize([Timing(seconds=(0.5,), run_queue_share=CLEAN)]),
        num_updated_params=30,
    )
    return replace(whole, **changes)


def profile_of(measured, **options):
    return measured_profile(measured, **{"precision": Precision.FP32, "analytic": None, **options})


def test_layers_add_up_to_the_whole_stage():
    """Layers of 1 + 2 + 4 s take 6 s without the cuts: each is worth 6 / 7 of its time."""
    tables = [layer.times[0] for layer in profile_of(measurement()).layers]
    assert [table.forward_s for table in tables] == [pytest.approx((k * 6 / 7, 2 * k)) for k in (1.0, 2.0, 4.0)]
    assert [table.backward_s for table in tables] == [pytest.approx((k * 12 / 7, 4 * k)) for k in (1.0, 2.0, 4.0)]
    assert {(table.device_type, table.samples) for table in tables} == {("box", (1, 2))}


def test_stage_and_layers_are_read_from_the_same_repetitions():
    """One kind has no clean timing: the clean timings of the others are no measure of it, so all count."""
    mixed = times_of(1, whole=6.0, layers=(3.0, 4.0), whole_share=DIRTY)
    assert mixed.contaminated
    assert all(summary.contaminated for summary in mixed.summaries.values())
    assert measurement(times=(mixed,)).contaminated
    assert not measurement().contaminated


def test_bytes_of_parameters_follow_the_precision():
    measured = measurement(facts=ChainFacts(layers=(facts("a", num_params=10, num_shared_params=3),), skip_edges=()))
    measured = replace(measured, times=(times_of(1, whole=1.0, layers=(1.0,)),))
    for precision, size in ((Precision.FP32, 4), (Precision.BF16, 2)):
        layer = profile_of(measured, precision=precision).layers[0]
        assert (layer.params_bytes, layer.shared_params_bytes) == (10 * size, 3 * size)


def test_layers_outside_of_the_range_have_no_times():
    measured = measurement(first_layer=1, times=(times_of(1, whole=2.0, layers=(1.0,)),))
    assert [len(layer.times) for layer in profile_of(measured).layers] == [0, 1, 0]


def test_memory_bandwidth_gives_the_update_back():
    """30 parameters of 2 x (4 + 8) + 4 = 28 bytes in 0.5 s."""
    assert measurement().update_bandwidth_bytes_per_s == pytest.approx(30 * 28 / 0.5)
    assert measurement(update=None).update_bandwidth_bytes_per_s is None


def test_the_catalogue_gives_name_kinds_and_exchanges():
    analytic = ModelProfile(
        name="known",
        layers=tuple(
            Layer(name=name, kind="block", output_bytes=bytes_, tensor_parallel_bytes=5.0)
            for name, bytes_ in (("a", 16.0), ("b", 16.0), ("c", 0.0))
        ),
        precision=Precision.FP32,
        sequence_length=7,
    )
    profile = profile_of(measurement(), analytic=analytic)
    assert profile.name == "known@box"
    assert profile.sequence_length == 7
    assert {(layer.kind, layer.tensor_parallel_bytes) for layer in profile.layers} == {("block", 5.0)}


def test_layers_that_hand_on_something_else_than_the_catalogue_says_are_refused():
    layers = tuple(Layer(name=name, output_bytes=16.0) for name in "abc")
    analytic = ModelProfile(
        name="known",
        layers=layers,
        skip_edges=(SkipEdge(source=0, target=2, num_bytes=4.0),),
        precision=Precision.FP32,
    )
    with pytest.raises(BadInputError, match="output 16 bytes per sample at boundary 1, but the catalogue says 20"):
        profile_of(measurement(), analytic=analytic)


def test_times_are_added_to_a_profile_and_replace_those_of_the_same_device_type():
    other = TimeTable(device_type="another", samples=(1,), forward_s=(9.0,), backward_s=(9.0,))
    old = TimeTable(device_type="box", samples=(4,), forward_s=(9.0,), backward_s=(9.0,))
    layers = tuple(Layer(name=name, saved_bytes=77.0, times=(other, old)) for name in "abc")
    profile = with_times(ModelProfile(name="both", layers=layers), measurement())
    assert {layer.saved_bytes for layer in profile.layers} == {77.0}
    for layer in profile.layers:
        assert layer.table("another") == other
        assert layer.table("box").samples == (1, 2)


@pytest.mark.parametrize(
    ("names", "precision", "complaint"),
    [
        ("abx", Precision.FP16, "'b' instead of 'x'|'c' instead of 'x'"),
        ("ab", Precision.FP16, "'c' instead of 'none'"),
        ("abc", Precision.FP32, "is in fp16, but times would be measured in fp32; use --precision fp16"),
    ],
)
def test_times_of_other_layers_or_precisions_are_not_added(names, precision, complaint):
    profile = ModelProfile(name="p", layers=tuple(Layer(name=name) for name in "abc"))
    with pytest.raises(BadInputError, match=complaint):
        check_same_layers(profile, list(names), precision=precision)
