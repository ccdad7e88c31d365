"""Predicted and measured lanes of virtual workers side by side."""

import pytest

from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.report.waves.wave_perfetto import GATE, MeasuredSpan, wave_run_trace
from stagecut.planner.simulator.waves.timeline import simulate_waves
from tests.wave_files import SPREAD, tiny_plan, tiny_problem

MEASURED = (
    MeasuredSpan(0, 0, "", "forward", 3, 99.0, 100.0, 102.0),
    MeasuredSpan(0, 0, "", GATE, 1, 103.0, 104.0, 105.0),
    MeasuredSpan(0, 0, "", "forward", 4, 103.0, 105.0, 106.0),
    MeasuredSpan(0, 0, "server of slow", "push", 1, 106.0, 106.0, 110.0),
    MeasuredSpan(0, 0, "server of slow", "pull", 2, 108.0, 108.0, 112.0),
)
"""Two minibatches of wave 1, at half the speed."""


@pytest.fixture(scope="module")
def events():
    plan = tiny_plan(owners=SPREAD)
    timeline = simulate_waves(WaveCostModel(tiny_problem()).plan(plan), num_waves=3)
    return wave_run_trace(timeline, MEASURED, waves=range(1, 2), time_scale=2.0)["traceEvents"]


def _lane(events, process, name):
    (pid,) = (e["pid"] for e in events if e["name"] == "process_name" and e["args"]["name"] == process)
    (tid,) = (e["tid"] for e in events if e["name"] == "thread_name" and e["pid"] == pid and e["args"]["name"] == name)
    own = (e for e in events if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid))
    return [(e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6, e["name"], e["cat"]) for e in own]


def test_measured_actions_begin_at_zero_with_waits_between_them(events):
    """From the first forward at 100 s, and divided by 2; the wait at the gate is not drawn twice."""
    assert _lane(events, "worker 0, measured", "stage 0  fast/0") == [
        (0, 1, "F 3", "forward"),
        (1.5, 2, "wait for inputs", "wait"),
        (2, 2.5, "gate of wave 1", "wait"),
        (2.5, 3, "F 4", "forward"),
    ]


def test_exchanges_have_lanes_of_their_own_without_overlaps(events):
    """The pull was asked for while the push was on its way."""
    found = _lane(events, "worker 0, measured", "stage 0: server of slow")
    assert found == [(3, 5, "push 1", "push"), (5, 6, "pull 2", "pull")]


def test_predicted_lanes_hold_the_same_wave_and_begin_at_zero(events):
    lanes = [f"stage {index}  fast/{index}" for index in range(2)]
    found = [slice_ for lane in lanes for slice_ in _lane(events, "worker 0, predicted", lane)]
    assert {name for *_, name, _ in found} == {f"{kind} {number}" for kind in ("F", "B", "step") for number in (3, 4)}
    assert min(start for start, *_ in found) == 0
