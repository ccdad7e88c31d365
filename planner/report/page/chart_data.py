"""Numbers that the charts of a page draw, as plain values."""

from dataclasses import asdict

import numpy as np

from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.result import Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.convergence import steps_of
from stagecut.planner.report.gantt import STYLES
from stagecut.planner.report.labels import lane_labels, stage_labels
from stagecut.planner.report.page.contents import Contents
from stagecut.planner.simulator.timeline import MemoryCurve, Timeline

TICKS = 10_000_000
"""Times are whole ticks, of which an iteration has this many: short to write, and finer than any screen."""
KINDS = tuple(STYLES)
MOST_LINKS = 16
"""Links drawn; the table has all."""

Data = dict[str, object]


def chart_data(contents: Contents) -> Data:
    """Everything that is drawn, by the name of the chart."""
    played, timeline = contents.played, contents.played.timeline
    groups = timeline.num_devices
    limits = played.costs.limit_bytes[:groups]
    return {
        "iteration_s": timeline.iteration_s,
        "ticks": TICKS,
        "kinds": [STYLES[kind].name for kind in KINDS],
        "lanes": lane_labels(timeline, stage_labels(played.plan)),
        "short_lanes": [
            ", ".join(str(stage) for stage in np.flatnonzero(timeline.device == group)) for group in range(groups)
        ],
        "gantt": [_lane(timeline, group) for group in range(groups)],
        "memory": [_curve(curve, timeline.iteration_s) for curve in timeline.memory],
        "limits_bytes": _known(limits),
        "fullest": contents.binding.fullest,
        "memory_parts": [asdict(parts) for parts in played.memory[:groups]],
        "links": [[use.name, use.busy_s] for use in contents.binding.links[:MOST_LINKS]],
        "search": _search(contents.result),
        "compared": [
            {"solver": result.solver, "objective_s": result.objective_s, "bound_s": result.bound_s}
            for result in contents.compared
            if result.objective_s is not None
        ],
        "run": None if contents.run is None else _run(contents.run),
    }


def _lane(timeline: Timeline, group: int) -> Data:
    """The bars of a device group in order of time: starts as steps from bar to bar, all times in ticks."""
    shown = np.isin(timeline.kind, KINDS) & (timeline.end_s > timeline.start_s)
    tasks = np.flatnonzero(shown & (timeline.device[timeline.stage] == group))
    tasks = tasks[np.argsort(timeline.start_s[tasks], kind="stable")]
    start, end = (_ticks(times_s[tasks], timeline.iteration_s) for times_s in (timeline.start_s, timeline.end_s))
    return {
        "step": np.diff(start, prepend=0).tolist(),
        "length": (end - start).tolist(),
        "kind": [KINDS.index(TaskKind(kind)) for kind in timeline.kind[tasks].tolist()],
        "stage": timeline.stage[tasks].tolist(),
        "first": timeline.lo[tasks].tolist(),
        "samples": (timeline.hi - timeline.lo)[tasks].tolist(),
        "critical": np.isin(tasks, timeline.critical_path).astype(int).tolist(),
    }


def _curve(curve: MemoryCurve, iteration_s: float) -> Data:
    """A step function: steps of time in ticks, and for each the number of its level."""
    levels, level = np.unique(curve.memory_bytes, return_inverse=True)
    steps = np.diff(_ticks(curve.time_s, iteration_s), prepend=0)
    return {"step": steps.tolist(), "levels": levels.tolist(), "level": level.tolist()}


def _ticks(times_s: Floats, iteration_s: float) -> Ints:
    return np.rint(times_s / (iteration_s or 1.0) * TICKS).astype(np.int64)


def _search(result: Result) -> Data | None:
    if not result.history:
        return None
    steps = steps_of(result)
    return {"seconds": steps.seconds.tolist(), "best_s": _known(steps.best_s), "bound_s": _known(steps.bound_s)}


def _run(run: RunRecord) -> Data:
    return {
        "labels": [str(index) for index in range(len(run.stages))],
        "predicted": {
            "forward": [stage.predicted.forward_s for stage in run.stages],
            "backward": [stage.predicted.backward_s for stage in run.stages],
        },
        "measured": {
            "forward": [stage.measured.forward_s for stage in run.stages],
            "backward": [stage.measured.backward_s for stage in run.stages],
        },
    }


def _known(values: Floats) -> list[float | None]:
    return [value if np.isfinite(value) else None for value in values.tolist()]
