"""The trace says what the timeline says. Expected times: conftest.py."""

import dataclasses
import itertools
import json

import numpy as np
import pytest

from stagecut.planner.core.problem import Variant
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.report.perfetto import trace
from stagecut.planner.simulator.timeline import simulate


def _lanes(tree):
    """Names of the lanes, and the slices (start, end, name) of each by name of process and lane."""
    meta = [event for event in tree["traceEvents"] if event["ph"] == "M"]
    process = {event["pid"]: event["args"]["name"] for event in meta if event["name"] == "process_name"}
    lanes = {
        (event["pid"], event["tid"]): (process[event["pid"]], event["args"]["name"])
        for event in meta
        if event["name"] == "thread_name"
    }
    slices = {name: [] for name in lanes.values()}
    for event in tree["traceEvents"]:
        if event["ph"] == "X":
            lane = lanes[event["pid"], event["tid"]]
            slices[lane].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return {lane: sorted(spans) for lane, spans in slices.items()}


def _crowded(schedule, *, seed):
    """Six stages on three hosts behind a shared interface each, with odd times; interleaved: two per device group."""
    rng = np.random.default_rng(seed)
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    across = [(f"h{s // 2}:nic-out", f"h{s // 2 + 1}:nic-in") if s % 2 else (f"h{s // 2}:fabric",) for s in range(5)]
    back = [(f"h{s // 2 + 1}:nic-out", f"h{s // 2}:nic-in") if s % 2 else () for s in range(5)]
    return PlanCosts(
        variant=Variant(schedule=schedule, micro_batch=1, num_microbatches=9, chunks=chunks),
        warmup_depth=np.array(warmup_depths(schedule, 6, 9, chunks=chunks)),
        forward_s=rng.uniform(1e-4, 2e-3, 6),
        backward_s=rng.uniform(1e-4, 2e-3, 6),
        transfer_s=rng.uniform(1e-5, 2e-3, 5),
        forward_links=tuple(across),
        backward_links=tuple(back),
        sync_s=rng.uniform(0, 1e-3, 6),
        sync_links=tuple((f"h{s // 2}:fabric",) for s in range(6)),
        update_s=rng.uniform(0, 1e-3, 6),
        static_bytes=np.ones(6),
        saved_bytes=np.ones(6),
        working_bytes=np.ones(6),
        limit_bytes=np.full(6, np.inf),
    )


def test_stage_lane_shows_its_actions(timeline):
    lanes = _lanes(trace(timeline, stage_labels=["first", "second"]))
    assert lanes["stages", "first"] == [
        (0, 1e6, "F 0-1"),
        (1e6, 2e6, "F 2-3"),
        (8e6, 10e6, "B 0-1"),
        (14e6, 16e6, "B 2-3"),
    ]


def test_each_link_direction_has_a_lane(timeline):
    """Activations leave host 0 and enter host 1, gradients go the other way."""
    lanes = _lanes(trace(timeline))
    activations = [(1e6, 1.5e6, "activations 0-1"), (2e6, 2.5e6, "activations 2-3")]
    gradients = [(7.5e6, 8e6, "gradients 0-1"), (13.5e6, 14e6, "gradients 2-3")]
    assert lanes["links", "a-0:nic-out"] == lanes["links", "a-1:nic-in"] == activations
    assert lanes["links", "a-1:nic-out"] == lanes["links", "a-0:nic-in"] == gradients


def test_transfers_without_a_shared_link_get_a_lane_of_their_own(costs):
    lanes = _lanes(trace(simulate(dataclasses.replace(costs, forward_links=((),), backward_links=((),)))))
    assert len(lanes["links", "stage 0 to stage 1"]) == 2
    assert len(lanes["links", "stage 1 to stage 0"]) == 2


def test_stages_of_one_device_group_share_a_lane():
    """Stages s and s + 3; their memory is one counter."""
    tree = trace(simulate(_crowded(Schedule.INTERLEAVED, seed=0)))
    lanes = [name for process, name in _lanes(tree) if process == "stages"]
    assert lanes == ["stages 0, 3", "stages 1, 4", "stages 2, 5"]
    counters = {event["name"] for event in tree["traceEvents"] if event["ph"] == "C"}
    assert counters == {f"memory of {name}" for name in lanes}


@pytest.mark.parametrize("schedule", Schedule)
@pytest.mark.parametrize("seed", range(3))
def test_slices_of_a_lane_never_overlap(schedule, seed):
    lanes = _lanes(trace(simulate(_crowded(schedule, seed=seed))))
    assert len(lanes) > 10
    for spans in lanes.values():
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(spans))


def test_last_slice_ends_at_the_iteration_time():
    """The end is rounded to the nearest 1/8 us."""
    timeline = simulate(_crowded(Schedule.ONE_F_ONE_B, seed=1))
    last = max(span[1] for spans in _lanes(trace(timeline)).values() for span in spans)
    assert abs(last - 1e6 * timeline.iteration_s) <= 1 / 16


def test_memory_peaks_where_the_timeline_says(timeline):
    """Stage 0 keeps two micro-batches of 2 samples x 1 GB at most."""
    counters = [event for event in trace(timeline)["traceEvents"] if event["ph"] == "C"]
    first = [event["args"]["bytes"] for event in counters if event["name"] == "memory of stage 0"]
    assert max(first) == timeline.memory_high_water_bytes[0] == 4e9
    assert first[0] == 2e9
    assert first[-1] == 0


def test_trace_is_plain_json_and_repeatable(timeline):
    first, second = (json.dumps(trace(timeline), allow_nan=False) for _ in range(2))
    assert first == second


def test_actions_of_no_time_are_left_out(costs):
    instant = dataclasses.replace(costs, transfer_s=np.zeros(1))
    names = {event["name"] for event in trace(simulate(instant))["traceEvents"] if event["ph"] == "X"}
    assert not any(name.startswith("activations") for name in names)
