"""What a timeline says beside the iteration time."""

import numpy as np
import pytest

from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.simulator.timeline import simulate
from tests.pipelines import pipeline_costs


def memory_costs(schedule, *, micro_batch=1):
    return pipeline_costs(
        [1, 1.5, 1],
        [2, 1, 2],
        0.25,
        micro_batches=6,
        micro_batch=micro_batch,
        schedule=schedule,
        static_bytes=np.array([100.0, 200.0, 300.0]),
        saved_bytes=np.array([10.3, 20.1, 30.7]),
        working_bytes=np.array([1.1, 2.0, 3.0]),
    )


def test_bubbles_of_equal_stages_are_the_textbook_share():
    """(S - 1) / (M + S - 1) with S = 4, M = 8: 3 / 11."""
    timeline = simulate(pipeline_costs([1] * 4, [2] * 4, micro_batches=8))
    assert timeline.bubble_fraction == pytest.approx(3 / 11)
    assert timeline.busy_s.tolist() == [24] * 4
    assert timeline.busy_share == pytest.approx(np.full(4, 8 / 11))


def test_a_single_stage_has_no_bubbles():
    assert simulate(pipeline_costs([1], [2], micro_batches=5)).bubble_fraction == 0


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B])
@pytest.mark.parametrize("micro_batch", [1, 3])
def test_memory_high_water_is_the_planned_one(schedule, micro_batch):
    """Every stage reaches its warm-up depth, as six micro-batches are enough for it."""
    costs = memory_costs(schedule, micro_batch=micro_batch)
    assert simulate(costs).memory_high_water_bytes.tolist() == costs.memory_bytes.tolist()


def shared_costs(**changes):
    """Two device groups with two chunks each, four micro-batches."""
    return pipeline_costs([1] * 4, [2] * 4, micro_batches=4, schedule=Schedule.INTERLEAVED, chunks=2, **changes)


def test_stages_of_one_device_group_share_its_memory():
    """Static 1 + 4 and 2 + 8. In flight at most: 3 of chunk 0 and 2 of chunk 1, then 4 and 1; 2 and 1, then 3 and 0.

    Group 0 keeps 10 and 1 bytes per micro-batch: 4 x 10 + 1; group 1 keeps 1 and 100: 2 + 100. A working set
    of 0.5 bytes comes on top. Stages 2 and 3 are on the devices of stages 0 and 1.
    """
    costs = shared_costs(
        static_bytes=np.array([1.0, 2.0, 4.0, 8.0]),
        saved_bytes=np.array([10.0, 1.0, 1.0, 100.0]),
        working_bytes=np.full(4, 0.5),
    )
    timeline = simulate(costs)
    assert timeline.memory_high_water_bytes.tolist() == costs.memory_bytes.tolist() == [46.5, 112.5] * 2
    assert len(timeline.memory) == timeline.num_devices == 2


def test_bubbles_of_shared_device_groups_count_groups():
    """24 s of work per group in (4 x 2 + 2 - 1) x 3 = 27 s, 12 s for each of its two stages."""
    timeline = simulate(shared_costs())
    assert timeline.busy_s.tolist() == [12] * 4
    assert timeline.bubble_fraction == pytest.approx(3 / 27)
    assert timeline.device.tolist() == [0, 1, 0, 1]


def test_memory_rises_with_forwards_and_falls_with_backwards():
    """One stage, k = 1, F = 1, B = 2: static 100, saved 10 from a forward's start to its backward's end, working 1."""
    costs = pipeline_costs(
        [1],
        [2],
        micro_batches=2,
        static_bytes=np.array([100.0]),
        saved_bytes=np.array([10.0]),
        working_bytes=np.array([1.0]),
    )
    (curve,) = simulate(costs).memory
    assert curve.time_s.tolist() == [0, 0, 1, 1, 3, 3, 4, 4, 6]
    assert curve.memory_bytes.tolist() == [100, 111, 110, 111, 100, 111, 110, 111, 100]


def test_ranges_count_samples():
    timeline = simulate(memory_costs(Schedule.GPIPE, micro_batch=3))
    forwards = (timeline.kind == TaskKind.FORWARD) & (timeline.stage == 0)
    assert timeline.lo[forwards].tolist() == [0, 3, 6, 9, 12, 15]
    assert timeline.hi[forwards].tolist() == [3, 6, 9, 12, 15, 18]


def test_tasks_name_the_links_they_occupy():
    costs = pipeline_costs(
        [1, 1], [1, 1], 1, micro_batches=1, forward_links=(("a:out", "b:in"),), sync_links=(("a:in",), ())
    )
    timeline = simulate(costs)
    tasks = zip(timeline.kind, timeline.stage, timeline.links, strict=True)
    named = {(TaskKind(kind).name, int(stage)): names for kind, stage, names in tasks if names}
    assert named == {("SEND_FORWARD", 0): ("a:out", "b:in"), ("SYNC", 0): ("a:in",)}


def test_the_critical_path_of_one_micro_batch_is_everything_in_turn():
    """F of both stages with the transfer between, then back, then all-reduce and step of stage 0."""
    costs = pipeline_costs([1, 1], [2, 2], 5, micro_batches=1, sync_s=np.array([1.0, 1.0]), update_s=np.ones(2))
    timeline = simulate(costs)
    path = [(TaskKind(timeline.kind[task]).name, int(timeline.stage[task])) for task in timeline.critical_path]
    assert path == [
        ("FORWARD", 0),
        ("SEND_FORWARD", 0),
        ("FORWARD", 1),
        ("BACKWARD", 1),
        ("SEND_BACKWARD", 1),
        ("BACKWARD", 0),
        ("SYNC", 0),
        ("UPDATE", 0),
    ]


def test_the_critical_path_passes_through_a_queue():
    """The all-reduce of stage 0 waits on the link for that of stage 1, not for its own backward."""
    costs = pipeline_costs(
        [1, 1], [1, 1], micro_batches=1, sync_s=np.array([10.0, 10.0]), sync_links=(("nic",), ("nic",))
    )
    timeline = simulate(costs)
    path = [(TaskKind(timeline.kind[task]).name, int(timeline.stage[task])) for task in timeline.critical_path]
    assert path[-3:] == [("BACKWARD", 1), ("SYNC", 1), ("SYNC", 0)]
