"""Trace of virtual workers for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from stagecut.planner.report.perfetto import Event, grid, process_names
from stagecut.planner.report.waves.wave_labels import wave_stage_labels
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.play import WaveSpan
from stagecut.planner.simulator.waves.timeline import COMPUTATION, WaveFlow, WaveTimeline

GATE = "gate"
"""What a stage does that waits for other workers."""
SHORT: Mapping[str, str] = {
    WaveKind.FORWARD: "F",
    WaveKind.BACKWARD: "B",
    WaveKind.UPDATE: "step",
    WaveKind.ALL_REDUCE: "all-reduce",
    GATE: "gate of wave",
}
ONCE_A_WAVE = frozenset({WaveKind.PUSH, WaveKind.PULL, WaveKind.ALL_REDUCE})


def wave_trace(timeline: WaveTimeline) -> dict[str, object]:
    """Chrome trace events: a process for each worker with a lane for each stage, and one with a lane for each link.

    Slices of one lane never overlap. A message is drawn on every link that it occupies, the servers' among them, and on
    a lane of its own flow where it has a path of its own.
    """
    return {"traceEvents": [*_simulated(timeline, timeline.spans)], "displayTimeUnit": "ms"}


class MeasuredSpan(NamedTuple):
    """What a stage did, or waited for at a gate, or exchanged; seconds of one clock."""

    worker: int
    stage: int
    lane: str
    """Empty for the stage itself, else with whom it exchanges."""
    kind: str
    """A `WaveKind`, or `GATE`."""
    number: int
    """The minibatch; the wave of what happens once a wave."""
    ready_s: float
    """When the stage was free for it."""
    start_s: float
    """When its inputs had arrived."""
    end_s: float


def wave_run_trace(
    timeline: WaveTimeline, measured: Sequence[MeasuredSpan], *, waves: range, time_scale: float = 1.0
) -> dict[str, object]:
    """Chrome trace events: the lanes of :func:`wave_trace` as predicted, and a process for each worker as measured.

    That has a lane for each stage, in which waits are slices of their own, and one for each of its exchanges. Slices of
    one lane never overlap. Prediction and measurement begin at zero with the first action shown.

    Parameters
    ----------
    timeline
        At least as long as to the end of the waves.
    measured
        Spans of these waves.
    time_scale
        Measured seconds are divided by it.
    """
    plan = timeline.costs.plan
    shown = [span for span in timeline.spans if _wave_of(timeline, span) in waves]
    events = [*_simulated(timeline, shown, what=", predicted")]
    zero_s = min((span.start_s for span in measured if not span.lane and span.kind != GATE), default=0.0)
    for worker, labels in enumerate(wave_stage_labels(plan)):
        own = sorted((span for span in measured if span.worker == worker), key=lambda span: (span.stage, span.lane))
        lanes = {(stage, ""): f"stage {label}" for stage, label in enumerate(labels)}
        lanes |= {(span.stage, span.lane): f"stage {span.stage}: {span.lane}" for span in own if span.lane}
        process = 2 + len(plan.workers) + worker
        events += process_names(process, f"worker {worker}, measured", list(lanes.values()))
        for lane, place in enumerate(lanes):
            there = sorted((span for span in own if (span.stage, span.lane) == place), key=lambda span: span.end_s)
            events += _measured(there, zero_s, time_scale, place={"pid": process, "tid": lane})
    return {"traceEvents": events, "displayTimeUnit": "ms"}


def _measured(
    spans: Iterable[MeasuredSpan], zero_s: float, time_scale: float, *, place: Mapping[str, object]
) -> Iterator[Event]:
    """One lane: everything after the wait for its inputs, and nothing before the end of what was before."""
    free = 0.0
    for span in spans:
        ready, start, end = (max(free, grid((time_s - zero_s) / time_scale)) for time_s in span[-3:])
        name = f"{SHORT.get(span.kind, span.kind)} {span.number}"
        category = "wait" if span.kind == GATE else span.kind
        args = {"worker": span.worker, "stage": span.stage}
        yield from _event(ready, start, name="wait for inputs", category="wait", place=place, args=args)
        yield from _event(start, end, name=name, category=category, place=place, args=args)
        free = end


def _simulated(timeline: WaveTimeline, spans: Sequence[WaveSpan], *, what: str = "") -> Iterator[Event]:
    """Names and slices of a simulation, which begins with the first of these spans."""
    labels = wave_stage_labels(timeline.costs.plan)
    zero_s = min(span.start_s for span in spans)
    links = list(dict.fromkeys(name for flow in timeline.flows for name in _lanes(flow)))
    for number, own in enumerate(labels):
        yield from process_names(1 + number, f"worker {number}{what}", [f"stage {label}" for label in own])
    lanes = {name: lane for lane, name in enumerate(links)}
    yield from process_names(1 + len(labels), f"links{what}", links)
    for span in spans:
        if span.kind in COMPUTATION:
            yield from _slice(timeline, span, zero_s, place={"pid": 1 + span.worker, "tid": span.stage})
        else:
            for name in _lanes(timeline.flows[span.flow]):
                yield from _slice(timeline, span, zero_s, place={"pid": 1 + len(labels), "tid": lanes[name]})


def _lanes(flow: WaveFlow) -> tuple[str, ...]:
    """Links of a flow, or the name of its own path."""
    if flow.links:
        return tuple(dict.fromkeys(flow.links))
    where = f"worker {flow.worker}, stage {flow.stage}"
    return (f"{where}: {flow.kind}{_about(flow)}",)


def _about(flow: WaveFlow) -> str:
    """To or from which server a message goes, for example ` to host-1`, or what is summed; empty for others."""
    if flow.layers is not None:
        start, stop = flow.layers
        return f" of layers [{start}, {stop})"
    way = {WaveKind.PUSH: "to", WaveKind.PULL: "from"}.get(flow.kind)
    return f" {way} {flow.owner}" if way else ""


def _slice(timeline: WaveTimeline, span: WaveSpan, zero_s: float, *, place: Mapping[str, object]) -> Iterator[Event]:
    name = f"{SHORT.get(span.kind, span.kind)} {span.number}"
    unit = "wave" if _is_by_wave(timeline, span) else "minibatch"
    args: dict[str, object] = {"worker": span.worker, "stage": span.stage, unit: span.number}
    if span.kind not in COMPUTATION:
        name = f"{name}{_about(timeline.flows[span.flow])}"
    if span.kind in {WaveKind.FORWARD, WaveKind.PULL}:
        args["clock"] = span.clock
    start, end = grid(span.start_s - zero_s), grid(span.end_s - zero_s)
    yield from _event(start, end, name=name, category=str(span.kind), place=place, args=args)


def _event(
    start: float, end: float, *, name: str, category: str, place: Mapping[str, object], args: Mapping[str, object]
) -> Iterator[Event]:
    """One complete event, from and to microseconds on the grid; nothing where it would have no length."""
    if end > start:
        yield {"ph": "X", **place, "ts": start, "dur": end - start, "name": name, "cat": category, "args": args}


def _is_by_wave(timeline: WaveTimeline, span: WaveSpan) -> bool:
    return span.kind in ONCE_A_WAVE or (span.kind is WaveKind.UPDATE and timeline.steps_by_wave)


def _wave_of(timeline: WaveTimeline, span: WaveSpan) -> int:
    wave = timeline.costs.workers[span.worker].worker.wave
    return span.number if _is_by_wave(timeline, span) else (span.number - 1) // wave
