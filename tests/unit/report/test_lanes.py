"""Stages that share a device group share a lane."""

import pytest
from matplotlib.collections import PolyCollection

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.report.gantt import BAR, draw_gantt
from stagecut.planner.report.labels import lane_labels
from stagecut.planner.simulator.timeline import simulate
from tests.pipelines import pipeline_costs


@pytest.fixture
def shared():
    """Two device groups with two chunks each, two micro-batches."""
    costs = pipeline_costs([1] * 4, [2] * 4, micro_batches=2, schedule=Schedule.INTERLEAVED, chunks=2)
    return simulate(costs)


def test_a_lane_names_its_stages(shared):
    assert lane_labels(shared) == ["stages 0, 2", "stages 1, 3"]
    assert lane_labels(shared, ["a", "b", "c", "d"]) == ["a + c", "b + d"]


def test_a_stage_of_its_own_is_named_alone():
    assert lane_labels(simulate(pipeline_costs([1, 1], [2, 2], micro_batches=2))) == ["stage 0", "stage 1"]


def test_a_chart_has_a_row_per_device_group(shared):
    """Forwards without transfers: stage 0 at 0 and 1, stage 1 at 1 and 2, stage 2 at 2 and 3, stage 3 at 3 and 6."""
    _, axes = draw_gantt(shared)
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stages 0, 2", "stages 1, 3"]
    (boxes,) = [item for item in axes.collections if isinstance(item, PolyCollection) and item.get_label() == "forward"]
    corners = [path.vertices for path in boxes.get_paths()]
    drawn = sorted((box[:, 0].min(), round(box[:, 1].min() + BAR / 2)) for box in corners)
    assert drawn == [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0), (3, 1), (6, 1)]
