"""Trace of one iteration as predicted and as measured, for Perfetto (ui.perfetto.dev)."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Protocol

from stagecut.planner.report.lanes import lane_labels
from stagecut.planner.report.perfetto import DEVICES, NAMES, Event, grid, process_names, stage_slices
from stagecut.planner.simulator.iteration_graph import Kind
from stagecut.planner.simulator.timeline import Timeline

MEASURED = DEVICES + 1
"""Number of the process that holds the lanes of the ranks."""
CATEGORIES = {
    "F": "forward",
    "B": "backward",
    "I": "input gradient",
    "W": "weight gradient",
    "sync": "sync",
    "update": "update",
}
SPAN_NAMES = {"sync": NAMES[Kind.SYNC], "update": NAMES[Kind.UPDATE]}


class MeasuredSpan(Protocol):
    """What a rank did; seconds of one clock that all ranks have in common."""

    @property
    def rank(self) -> int:
        """The lane."""
        ...

    @property
    def kind(self) -> str:
        """One of `CATEGORIES`."""
        ...

    @property
    def stage(self) -> int:
        """The stage."""
        ...

    @property
    def lo(self) -> int:
        """First sample."""
        ...

    @property
    def hi(self) -> int:
        """One past the last sample."""
        ...

    @property
    def ready_s(self) -> float:
        """When the rank was free for it."""
        ...

    @property
    def start_s(self) -> float:
        """When its inputs had come."""
        ...

    @property
    def end_s(self) -> float:
        """When it was done."""
        ...


def run_trace(
    timeline: Timeline,
    spans: Iterable[MeasuredSpan],
    *,
    start_s: float,
    rank_labels: Sequence[str],
    stage_labels: Sequence[str] = (),
) -> dict[str, object]:
    """Chrome trace events: a lane per device group as predicted, a lane per rank as measured.

    Parameters
    ----------
    timeline
        Of one pipeline, which stands for all of them.
    spans
        Of all ranks in one step.
    start_s
        When that step began, on the clock of the spans: both processes begin at zero.
    rank_labels
        One per rank.
    stage_labels
        One per stage, for example its devices; numbers by default.

    Notes
    -----
    Slices of one lane never overlap. Waiting for inputs is a slice of its own; the gaps are neither.
    """
    ordered = sorted(spans, key=lambda span: (span.rank, span.start_s, span.end_s))
    events = [
        *process_names(DEVICES, "predicted", lane_labels(timeline, stage_labels)),
        *process_names(MEASURED, "measured", rank_labels),
        *stage_slices(timeline),
    ]
    for _, own in groupby(ordered, key=lambda span: span.rank):
        events.extend(_rank_slices(own, start_s))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rank_slices(spans: Iterable[MeasuredSpan], zero_s: float) -> Iterator[Event]:
    """What one rank did, and what it waited for before."""
    free = 0.0
    for span in spans:
        ready, start, end = (max(free, grid(time_s - zero_s)) for time_s in (span.ready_s, span.start_s, span.end_s))
        samples = f" {span.lo}-{span.hi - 1}" if span.kind not in SPAN_NAMES else ""
        name = f"{SPAN_NAMES.get(span.kind, span.kind)}{samples}"
        yield from _slice(span, ready, start, name=f"wait for {name}", category="wait")
        yield from _slice(span, start, end, name=name, category=CATEGORIES.get(span.kind, span.kind))
        free = end


def _slice(span: MeasuredSpan, start: float, end: float, *, name: str, category: str) -> Iterator[Event]:
    """One complete event, or nothing where it would have no length."""
    if end <= start:
        return
    yield {
        "ph": "X",
        "pid": MEASURED,
        "tid": span.rank,
        "ts": start,
        "dur": end - start,
        "name": name,
        "cat": category,
        "args": {"stage": span.stage, "first sample": span.lo, "samples": span.hi - span.lo},
    }
