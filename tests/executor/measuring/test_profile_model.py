"""Layers timed in this process: what is measured, never how long it takes."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from stagecut.executor.measure.chain_source import ChainSource, user_chain  # noqa: E402
from stagecut.executor.measure.measured_profile import measured_profile  # noqa: E402
from stagecut.executor.measure.profile_model import ProfileChoices, check_choices, measure, merge  # noqa: E402
from stagecut.executor.measure.samples import draw_samples  # noqa: E402
from stagecut.executor.measure.timings import KINDS  # noqa: E402
from stagecut.executor.measure.workers import single_worker  # noqa: E402
from stagecut.models import build_model  # noqa: E402
from stagecut.models.modules.module_chain import ModuleChain  # noqa: E402
from stagecut.planner.core.messages.errors import BadInputError  # noqa: E402
from stagecut.planner.core.precision import Precision  # noqa: E402

HERE = __name__


def plain_layers():
    """A list of modules, as a user may have it."""
    return [nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)]


def sequence():
    """An `nn.Sequential`, as a user may have it."""
    return nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2))


def one_module():
    """A single module, which is refused."""
    return nn.Linear(4, 8)


def nothing_works():
    """Nor a function that fails."""
    raise ValueError("no weights here")


@pytest.fixture(autouse=True)
def threads():
    """Measuring sets the number of threads."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def choices(**changes):
    usual = {
        "source": ChainSource(layers=f"{HERE}:plain_layers"),
        "sample_shape": (4,),
        "micro_batches": (1, 3),
        "repetitions": 1,
        "warmup": 1,
    }
    return ProfileChoices(**{**usual, **changes})


def measured(**changes):
    asked = choices(**changes)
    return merge(asked, [measure(single_worker(), asked)])


def test_every_layer_gets_a_time_at_every_size():
    profile = measured_profile(measured(), precision=Precision.FP32, analytic=None)
    assert profile.name == "plain_layers"
    assert [layer.name for layer in profile.layers] == ["layer0", "layer1", "layer2"]
    for layer in profile.layers:
        (table,) = layer.times
        assert table.device_type == "cpu-1-thread"
        assert table.samples == (1, 3)
        assert min(*table.forward_s, *table.backward_s) > 0


def test_every_kind_of_pass_has_readings():
    """A whole stage has one part, layers apart have three; recomputing is timed too."""
    (times, _) = measured().times
    assert set(times.summaries) == set(KINDS)
    assert [len(times.summaries[kind].median_s) for kind in KINDS] == [1, 1, 3, 3, 3, 3]


def test_a_range_is_timed_as_one_stage_and_the_rest_is_only_counted():
    profile = measured_profile(measured(layers=(1, 3)), precision=Precision.FP32, analytic=None)
    assert [len(layer.times) for layer in profile.layers] == [0, 1, 1]
    assert [layer.saved_bytes for layer in profile.layers] == [16.0, 32.0, 32.0]


def test_autocast_profiles_count_two_bytes():
    profile = measured_profile(measured(precision=Precision.BF16), precision=Precision.BF16, analytic=None)
    assert profile.precision is Precision.BF16
    assert profile.layers[0].params_bytes == 2 * 40
    assert profile.layers[0].output_bytes == 2 * 8


def test_a_model_of_the_catalogue_agrees_with_its_analytic_profile():
    """Parameters, operations and what crosses boundaries are equal, saved bytes within one in a hundred."""
    source = ChainSource(name="gpt-mini", sequence_length=16)
    asked = choices(source=source, sample_shape=None, micro_batches=(1,), layers=(0, 2))
    profile = measured_profile(
        merge(asked, [measure(single_worker(), asked)]),
        precision=Precision.FP32,
        analytic=source.analytic_profile(Precision.FP32),
    )
    analytic = build_model("gpt-mini", precision=Precision.FP32, sequence_length=16)
    assert profile.name == "gpt-mini@cpu-1-thread"
    for layer, known in zip(profile.layers, analytic.layers, strict=True):
        assert (layer.params_bytes, layer.shared_params_bytes) == (known.params_bytes, known.shared_params_bytes)
        assert layer.forward_flops == known.forward_flops
        assert layer.output_bytes == known.output_bytes
        assert layer.saved_bytes == pytest.approx(known.saved_bytes, rel=0.01)


def test_lists_sequences_and_chains_of_the_user_are_layers():
    assert len(user_chain(f"{HERE}:plain_layers").layers) == 3
    assert len(user_chain(f"{HERE}:sequence").layers) == 2
    assert isinstance(user_chain("tests.executor.tiny_layers:chain"), ModuleChain)


@pytest.mark.parametrize(
    ("reference", "complaint"),
    [
        ("nothing", "must be package.module:function"),
        ("no_such_module:f", "ModuleNotFoundError"),
        (f"{HERE}:no_such_function", "no attribute 'no_such_function'"),
        (f"{HERE}:one_module", "must return a ModuleChain or a list of modules, not a Linear"),
        (f"{HERE}:nothing_works", "ValueError: no weights here"),
    ],
)
def test_what_gives_no_layers_is_refused(reference, complaint):
    with pytest.raises(BadInputError, match=complaint):
        user_chain(reference)


def test_a_range_beyond_the_layers_is_refused():
    with pytest.raises(BadInputError, match="layers 0 to 2, got 6"):
        check_choices(choices(layers=(1, 7)))


def test_layers_that_make_no_samples_need_a_shape():
    with pytest.raises(BadInputError, match="--sample-shape"):
        draw_samples(user_chain(f"{HERE}:plain_layers"), 2, shape=None, device=torch.device("cpu"))


def test_samples_are_the_same_in_every_process():
    chain = user_chain("tests.executor.tiny_layers:chain")
    first, second = (draw_samples(chain, 3, shape=None, device=torch.device("cpu")) for _ in range(2))
    assert torch.equal(first.state[0], second.state[0])
    assert torch.equal(first.first(2).state[0], second.state[0][:2])
