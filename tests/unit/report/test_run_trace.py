"""Predicted and measured lanes side by side. Predicted times: conftest.py."""

import json
from typing import NamedTuple

import pytest

from stagecut.planner.report.perfetto import run_trace


class Span(NamedTuple):
    rank: int
    kind: str
    stage: int
    lo: int
    hi: int
    ready_s: float
    start_s: float
    end_s: float


SPANS = (
    Span(1, "F", 1, 0, 2, 50.0, 51.5, 53.0),
    Span(1, "update", 1, 0, 4, 53.0, 53.0, 54.0),
    Span(0, "F", 0, 0, 2, 50.0, 50.0, 51.0),
    Span(0, "sync", 0, 0, 4, 51.0, 51.0, 51.25),
)
"""The clock showed 50 s when the step began."""


@pytest.fixture
def tree(timeline):
    return run_trace(timeline, SPANS, start_s=50.0, rank_labels=("rank 0", "rank 1"), stage_labels=("first", "second"))


def _slices(tree, process, lane):
    events = [event for event in tree["traceEvents"] if event["ph"] == "X"]
    own = [event for event in events if (event["pid"], event["tid"]) == (process, lane)]
    return [(event["ts"], event["ts"] + event["dur"], event["name"]) for event in own]


def test_both_processes_have_a_lane_for_each_group_and_rank(tree):
    names = [event["args"]["name"] for event in tree["traceEvents"] if event["name"] in ("process_name", "thread_name")]
    assert names == ["predicted", "first", "second", "measured", "rank 0", "rank 1"]


def test_measured_actions_begin_at_zero_with_the_step(tree):
    assert _slices(tree, 2, 0) == [(0, 1e6, "F 0-1"), (1e6, 1.25e6, "gradient synchronisation")]


def test_waiting_for_inputs_is_a_slice_of_its_own(tree):
    assert _slices(tree, 2, 1) == [
        (0, 1.5e6, "wait for F 0-1"),
        (1.5e6, 3e6, "F 0-1"),
        (3e6, 4e6, "optimizer step"),
    ]


def test_predicted_actions_are_those_of_the_timeline(tree):
    assert _slices(tree, 1, 0)[:2] == [(0, 1e6, "F 0-1"), (1e6, 2e6, "F 2-3")]


def test_slices_of_a_lane_never_overlap(timeline):
    """A wait that the clock puts before the end of the last action begins there."""
    spans = (Span(0, "F", 0, 0, 2, 0.0, 0.0, 1.0), Span(0, "B", 0, 0, 2, 0.5, 2.0, 3.0))
    tree = run_trace(timeline, spans, start_s=0.0, rank_labels=("rank 0",))
    assert _slices(tree, 2, 0) == [(0, 1e6, "F 0-1"), (1e6, 2e6, "wait for B 0-1"), (2e6, 3e6, "B 0-1")]


def test_trace_is_plain_json(tree):
    json.dumps(tree, allow_nan=False)
