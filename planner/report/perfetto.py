"""Trace of one iteration for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

from stagecut.planner.core.units import US
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.labels import lane_labels
from stagecut.planner.simulator.timeline import Timeline

DEVICES, LINKS = 1, 2
"""Process numbers: one for the lanes of the device groups, one for those of the links."""
GRID_PER_US = 8
"""Times lie on a grid of 1/8 us, the finest that is exact in binary and whole in nanoseconds: a slice ends exactly
where the next one begins, however the reader rounds."""
NAMES = {
    TaskKind.FORWARD: "F",
    TaskKind.BACKWARD: "B",
    TaskKind.SEND_FORWARD: "activations",
    TaskKind.SEND_BACKWARD: "gradients",
    TaskKind.SYNC: "gradient synchronisation",
    TaskKind.UPDATE: "optimizer step",
}
ACTIONS = frozenset({TaskKind.FORWARD, TaskKind.BACKWARD})
SENDS = frozenset({TaskKind.SEND_FORWARD, TaskKind.SEND_BACKWARD})

Event = dict[str, object]


def trace(timeline: Timeline, *, stage_labels: Sequence[str] = ()) -> dict[str, object]:
    """Chrome trace events: a lane per device group and per link direction, memory as counters.

    Slices of one lane never overlap. A transfer is drawn on every link it occupies, and on a lane of its own boundary
    and direction where it shares no link. Stages are labelled with their numbers unless labels are given.
    """
    uses = [(task, name) for task in range(len(timeline.kind)) for name in _link_names(timeline, task)]
    links = list(dict.fromkeys(name for _, name in uses))
    events = [
        *process_names(DEVICES, "stages", lane_labels(timeline, stage_labels)),
        *process_names(LINKS, "links", links),
        *stage_slices(timeline),
        *(event for task, name in uses for event in _slice(timeline, task, process=LINKS, lane=links.index(name))),
        *_memory_counters(timeline),
    ]
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def process_names(number: int, name: str, lanes: Sequence[str]) -> Iterator[Event]:
    """Names of a process and of its lanes, in display order."""
    yield {"ph": "M", "pid": number, "tid": 0, "name": "process_name", "args": {"name": name}}
    yield {"ph": "M", "pid": number, "tid": 0, "name": "process_sort_index", "args": {"sort_index": number}}
    for lane, label in enumerate(lanes):
        yield {"ph": "M", "pid": number, "tid": lane, "name": "thread_name", "args": {"name": label}}
        yield {"ph": "M", "pid": number, "tid": lane, "name": "thread_sort_index", "args": {"sort_index": lane}}


def stage_slices(timeline: Timeline) -> Iterator[Event]:
    """Forwards, backwards, all-reduces and optimizer steps, on the lanes of their device groups."""
    for task in range(len(timeline.kind)):
        if timeline.kind[task] not in SENDS:
            yield from _slice(timeline, task, process=DEVICES, lane=int(timeline.device[timeline.stage[task]]))


def slice_event(
    start: float, end: float, *, name: str, category: str, process: int, lane: int, stage: int, samples: tuple[int, int]
) -> Iterator[Event]:
    """One complete event, from and to microseconds on the grid; nothing where it would have no length."""
    if end > start:
        place = {"pid": process, "tid": lane, "ts": start, "dur": end - start}
        args = {"stage": stage, "first sample": samples[0], "samples": samples[1] - samples[0]}
        yield {"ph": "X", **place, "name": name, "cat": category, "args": args}


def _link_names(timeline: Timeline, task: int) -> tuple[str, ...]:
    kind, stage = timeline.kind[task], int(timeline.stage[task])
    if timeline.links[task] or kind not in SENDS:
        return tuple(dict.fromkeys(timeline.links[task]))
    receiver = stage + 1 if kind == TaskKind.SEND_FORWARD else stage - 1
    return (f"stage {stage} to stage {receiver}",)


def _slice(timeline: Timeline, task: int, *, process: int, lane: int) -> Iterator[Event]:
    kind, lo, hi = TaskKind(int(timeline.kind[task])), int(timeline.lo[task]), int(timeline.hi[task])
    yield from slice_event(
        grid(timeline.start_s[task]),
        grid(timeline.end_s[task]),
        name=f"{NAMES[kind]} {lo}-{hi - 1}" if kind in ACTIONS | SENDS else NAMES[kind],
        category=kind.name.lower(),
        process=process,
        lane=lane,
        stage=int(timeline.stage[task]),
        samples=(lo, hi),
    )


def _memory_counters(timeline: Timeline) -> Iterator[Event]:
    """Memory per device, one counter track for each device group."""
    for lane, (name, curve) in enumerate(zip(lane_labels(timeline), timeline.memory, strict=True)):
        steps = {grid(time_s): num_bytes for time_s, num_bytes in zip(curve.time_s, curve.memory_bytes, strict=True)}
        for ts, num_bytes in steps.items():
            counter = {"name": f"memory of {name}", "args": {"bytes": float(num_bytes)}}
            yield {"ph": "C", "pid": DEVICES, "tid": lane, "ts": ts, **counter}


def grid(seconds: float) -> float:
    """Microseconds on the grid."""
    return round(float(seconds) / US * GRID_PER_US) / GRID_PER_US


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

    Slices of one lane never overlap. Waiting for inputs is a slice of its own; other gaps stay empty.

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
