"""Trace of virtual workers for Perfetto (ui.perfetto.dev) or chrome://tracing."""

from collections.abc import Iterator

from stagecut.planner.report.perfetto import Event, grid, process_names
from stagecut.planner.report.wave_labels import wave_stage_labels
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.play import WaveSpan
from stagecut.planner.simulator.waves.timeline import COMPUTATION, WaveFlow, WaveTimeline

SHORT = {WaveKind.FORWARD: "F", WaveKind.BACKWARD: "B", WaveKind.UPDATE: "step", WaveKind.ALL_REDUCE: "all-reduce"}
ONCE_A_WAVE = frozenset({WaveKind.PUSH, WaveKind.PULL, WaveKind.ALL_REDUCE})


def wave_trace(timeline: WaveTimeline) -> dict[str, object]:
    """Chrome trace events: a process for each worker with a lane for each stage, and one with a lane for each link.

    Slices of one lane never overlap. A message is drawn on every link that it occupies, the servers' among them, and on
    a lane of its own flow where it has a path of its own.
    """
    labels = wave_stage_labels(timeline.costs.plan)
    links = list(dict.fromkeys(name for flow in timeline.flows for name in _lanes(flow)))
    events: list[Event] = []
    for number, own in enumerate(labels):
        events += process_names(1 + number, f"worker {number}", [f"stage {label}" for label in own])
    lanes = {name: lane for lane, name in enumerate(links)}
    events += process_names(1 + len(labels), "links", links)
    for span in timeline.spans:
        if span.kind in COMPUTATION:
            events += _slice(timeline, span, process=1 + span.worker, lane=span.stage)
        else:
            for name in _lanes(timeline.flows[span.flow]):
                events += _slice(timeline, span, process=1 + len(labels), lane=lanes[name])
    return {"traceEvents": events, "displayTimeUnit": "ms"}


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


def _slice(timeline: WaveTimeline, span: WaveSpan, *, process: int, lane: int) -> Iterator[Event]:
    """One complete event; nothing where it would have no length."""
    start, end = grid(span.start_s), grid(span.end_s)
    if end <= start:
        return
    name = f"{SHORT.get(span.kind, span.kind)} {span.number}"
    by_wave = span.kind in ONCE_A_WAVE or (span.kind is WaveKind.UPDATE and timeline.steps_by_wave)
    args: dict[str, object] = {
        "worker": span.worker,
        "stage": span.stage,
        "wave" if by_wave else "minibatch": span.number,
    }
    if span.kind not in COMPUTATION:
        name = f"{name}{_about(timeline.flows[span.flow])}"
    if span.kind in {WaveKind.FORWARD, WaveKind.PULL}:
        args["clock"] = span.clock
    place = {"pid": process, "tid": lane, "ts": start, "dur": end - start}
    yield {"ph": "X", **place, "name": name, "cat": str(span.kind), "args": args}
