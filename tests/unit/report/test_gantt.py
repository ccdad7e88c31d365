"""The Gantt chart says what the timeline says. Expected times: conftest.py."""

import dataclasses

import numpy as np
import pytest
from matplotlib.collections import PolyCollection

from stagecut.planner.report.gantt import BAR, draw_gantt, gantt_bytes
from stagecut.planner.report.images import ImageFormat
from stagecut.planner.simulator.timeline import simulate


def _boxes(axes, label):
    """(left, right, row) of every box of one kind."""
    collections = [item for item in axes.collections if isinstance(item, PolyCollection) and item.get_label() == label]
    corners = [path.vertices for collection in collections for path in collection.get_paths()]
    return sorted((box[:, 0].min(), box[:, 0].max(), round(box[:, 1].min() + BAR / 2)) for box in corners)


def test_axis_ends_at_the_iteration_time(timeline):
    _, axes = draw_gantt(timeline)
    assert axes.get_xlim() == (0.0, 16.0)


def test_title_states_time_and_bubble_share(timeline):
    _, axes = draw_gantt(timeline, title="three on pair")
    assert axes.get_title(loc="left") == "three on pair: 16 s per iteration, bubbles 43.75 %"


def test_boxes_are_the_spans(timeline):
    _, axes = draw_gantt(timeline)
    assert _boxes(axes, "forward") == [(0, 1, 0), (1, 2, 0), (1.5, 3.5, 1), (7.5, 9.5, 1)]
    assert _boxes(axes, "backward") == [(3.5, 7.5, 1), (8, 10, 0), (9.5, 13.5, 1), (14, 16, 0)]


def test_backwards_are_hatched_and_forwards_are_not(timeline):
    _, axes = draw_gantt(timeline)
    hatches = {item.get_label(): item.get_hatch() for item in axes.collections}
    assert hatches["forward"] is None
    assert hatches["backward"]


def test_boxes_carry_the_number_of_their_micro_batch(timeline):
    _, axes = draw_gantt(timeline)
    numbers = sorted((text.get_position()[0], text.get_text()) for text in axes.texts)
    assert [number for _, number in numbers] == ["0", "1", "0", "0", "1", "0", "1", "1"]


def test_first_stage_is_on_top(timeline):
    _, axes = draw_gantt(timeline, stage_labels=["first", "second"])
    bottom, top = axes.get_ylim()
    assert top < bottom
    assert [label.get_text() for label in axes.get_yticklabels()] == ["first", "second"]


def test_narrow_boxes_stay_without_numbers(costs):
    """256 micro-batches on 14 inches: less than four points each."""
    variant = dataclasses.replace(costs.variant, num_microbatches=256)
    _, axes = draw_gantt(simulate(dataclasses.replace(costs, variant=variant)))
    assert len(axes.texts) == 0


def test_boxes_of_thousands_are_drawn_as_one(costs):
    """Two stages with 1,500 micro-batches: 3,000 rectangles of four corners and a closing one for each kind."""
    variant = dataclasses.replace(costs.variant, num_microbatches=1500)
    _, axes = draw_gantt(simulate(dataclasses.replace(costs, variant=variant)))
    drawn = {item.get_label(): item for item in axes.collections if item.get_label() in {"forward", "backward"}}
    assert {label: len(item.get_paths()) for label, item in drawn.items()} == {"forward": 1, "backward": 1}
    assert {len(item.get_paths()[0].vertices) for item in drawn.values()} == {3000 * 5}
    assert drawn["backward"].get_hatch()


def test_iteration_of_no_time_can_be_drawn(costs):
    still = dataclasses.replace(
        costs, forward_s=np.zeros(2), backward_s=np.zeros(2), transfer_s=np.zeros(1), update_s=np.zeros(2)
    )
    assert gantt_bytes(simulate(still), ImageFormat.PNG)


@pytest.mark.parametrize(("image", "start"), [(ImageFormat.PNG, b"\x89PNG"), (ImageFormat.SVG, b"<?xml")])
def test_same_timeline_gives_the_same_bytes(timeline, image, start):
    first, second = (gantt_bytes(timeline, image, title="50$ $x$") for _ in range(2))
    assert first == second
    assert first.startswith(start)
