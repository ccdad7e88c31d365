"""Trace of one iteration as predicted and as measured, for Perfetto (ui.perfetto.dev)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

from stagecut.planner.report.labels import lane_labels
from stagecut.planner.report.perfetto import DEVICES, NAMES, Event, grid, process_names, slice_event, stage_slices
from stagecut.planner.simulator.iteration_graph import TaskKind
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
SPAN_NAMES = {"sync": NAMES[TaskKind.SYNC], "update": NAMES[TaskKind.UPDATE]}

MeasuredSpan = tuple[int, str, int, int, int, float, float, float]
"""What a rank did: rank, kind (of `CATEGORIES`), stage, first sample, one past the last sample, and when the rank was
free for it, when its inputs had arrived and when it was done, in seconds of one clock."""


def run_trace(
    timeline: Timeline,
    spans: Iterable[MeasuredSpan],
    *,
    start_s: float,
    rank_labels: Sequence[str],
    stage_labels: Sequence[str] = (),
) -> dict[str, object]:
    """Chrome trace events: a lane per device group as predicted, a lane per rank as measured.

    Slices of one lane never overlap. Waiting for inputs is a slice of its own; gaps are neither.

    Parameters
    ----------
    timeline
        The prediction for one pipeline, which stands for all of them.
    spans
        What all ranks did in one step.
    start_s
        When that step began, on the clock of the spans: both processes begin at zero.
    """
    ordered = sorted(spans, key=lambda span: (span[0], *span[-2:]))
    events = [
        *process_names(DEVICES, "predicted", lane_labels(timeline, stage_labels)),
        *process_names(MEASURED, "measured", rank_labels),
        *stage_slices(timeline),
    ]
    for _, own in groupby(ordered, key=lambda span: span[0]):
        events.extend(_rank_slices(own, start_s))
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _rank_slices(spans: Iterable[MeasuredSpan], zero_s: float) -> Iterator[Event]:
    """What one rank did, each action after the wait for its inputs."""
    free = 0.0
    for rank, kind, stage, lo, hi, *times_s in spans:
        ready, start, end = (max(free, grid(time_s - zero_s)) for time_s in times_s)
        name = SPAN_NAMES.get(kind) or f"{kind} {lo}-{hi - 1}"
        own_slice = partial(slice_event, process=MEASURED, lane=rank, stage=stage, samples=(lo, hi))
        yield from own_slice(ready, start, name=f"wait for {name}", category="wait")
        yield from own_slice(start, end, name=name, category=CATEGORIES.get(kind, kind))
        free = end
