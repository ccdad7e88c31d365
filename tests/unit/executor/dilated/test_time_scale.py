"""Time scales, and the layers that stand in for a model's."""

import pytest
import torch

from stagecut.executor.dilated.stand_in_layers import WIDTH, stand_ins
from stagecut.executor.dilated.time_scale import find_time_scale, round_up
from stagecut.executor.run.loop import RunObserver, train_rank
from stagecut.executor.run.options import RunOptions, build_team
from stagecut.models import build_model
from stagecut.planner.core.run_record import RunMode


@pytest.mark.parametrize(
    ("factor", "expected"),
    [(1.0, 1.0), (1.01, 1.5), (2.5, 2.5), (4.2, 5.0), (7.0, 8.0), (83.0, 100.0), (0.00044, 0.0005), (0.03, 0.03)],
)
def test_scales_are_rounded_up_to_round_up_ones(factor, expected):
    assert round_up(factor) == expected


def test_stand_ins_have_the_names_and_the_order_of_the_model():
    profile = build_model("gpt-mini")
    assert [layer.name for layer in stand_ins(profile).layers] == [layer.name for layer in profile.layers]


def test_stand_ins_cannot_change_places():
    """Affine functions a x + b do not commute."""
    first, second = (layer.build() for layer in stand_ins(build_model("gpt-mini")).layers[:2])
    state = torch.ones(3, WIDTH)
    assert not torch.allclose(first(second(state)), second(first(state)))


@pytest.fixture
def team(dilated_pace):
    plan_file, pace = dilated_pace
    options = RunOptions(num_steps=1, warmup=0, mode=RunMode.DILATED, stand_ins=True, device="cpu")
    own, batch = build_team(plan_file, options, pace=pace)
    return plan_file, options, own, batch


def test_all_ranks_find_the_same_scale_and_keep_the_weights(team):
    """Gradients are accumulated at full speed, and nothing is updated. Both rules of the docs bound it from below."""
    plan_file, _options, own, batch = team
    iteration_s = plan_file.predicted.iteration_s
    before = [p.detach().clone() for pipeline in own.pipelines for p in pipeline.named_parameters().values()]
    (scale,) = set(own.each(lambda pipeline: find_time_scale(pipeline, batch, iteration_s=iteration_s)))
    after = [p for pipeline in own.pipelines for p in pipeline.named_parameters().values()]
    assert all(map(torch.equal, before, after))
    actions = max(len(pipeline.turns) for pipeline in own.pipelines)
    assert scale * iteration_s >= 0.025 * (actions + 2 * (own.pipelines[0].layout.num_stages - 1))


def test_steps_are_told_in_the_times_of_the_plan(team):
    """A hundred times as slow by hand: no step is told to be as long as it was."""
    plan_file, options, own, batch = team
    slow = RunOptions(
        num_steps=1,
        warmup=0,
        mode=options.mode,
        stand_ins=True,
        device="cpu",
        time_scale=0.3 / plan_file.predicted.iteration_s,
    )
    told = []
    observer = RunObserver(step=lambda _step, _trace: None, scaled=lambda rank, scale: told.append((rank, scale)))
    traces = own.each(
        lambda pipeline: train_rank(
            pipeline, batch, options=slow, iteration_s=plan_file.predicted.iteration_s, observer=observer
        )
    )
    steps = [own_steps[0] for own_steps in traces]
    seconds = max(trace.end_s for trace in steps) - min(trace.start_s for trace in steps)
    assert sorted(told) == [(rank, slow.time_scale) for rank in range(len(own.pipelines))]
    assert 0.98 * plan_file.predicted.iteration_s <= seconds
    assert all(trace.late_s < seconds for trace in steps)
