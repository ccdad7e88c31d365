"""How layers, devices and numbers are written in tables and pictures."""

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.curve import Points
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import OwnObjective, Result, Status
from stagecut.planner.core.share import Share
from stagecut.planner.core.units import format_bytes, format_seconds
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.simulator.timeline import Timeline

UNKNOWN = "-"


def layer_label(model: ModelProfile, start: int, stop: int) -> str:
    """First and last layer of a stage, for example `0-11  embedding .. block5.ffn`."""
    first, last = model.layers[start].name, model.layers[stop - 1].name
    return f"{run_label(start, stop)}  {first if stop - start == 1 else f'{first} .. {last}'}"


def run_label(start: int, stop: int) -> str:
    """Numbers of the first and the last layer of a stage, for example `0-11`."""
    return str(start) if stop - start == 1 else f"{start}-{stop - 1}"


def device_label(names: tuple[str, ...]) -> str:
    """Device names with consecutive slots of one host merged, for example `v100-3/0-7`."""
    split = [name.rpartition("/") for name in names]
    by_host = groupby(split, key=lambda parts: parts[0] + parts[1])
    return ", ".join(f"{host}{_slots([slot for _, _, slot in parts])}" for host, parts in by_host)


def stage_labels(plan: Plan) -> tuple[str, ...]:
    """Number and devices of every stage, for the lanes of pictures."""
    return tuple(f"{index}  {device_label(stage.devices)}" for index, stage in enumerate(plan.stages))


def stage_name(pipeline: int, stage: int, *, several: bool) -> str:
    """The number of a stage, after that of its pipeline or virtual worker where there are several: `1:0`."""
    return f"{pipeline}:{stage}" if several else str(stage)


def lane_labels(timeline: Timeline, labels: Sequence[str] = ()) -> list[str]:
    """One label per device group: the given labels of its stages, `stage 0` or `stages 0, 4` by default."""
    lanes = [np.flatnonzero(timeline.device == device).tolist() for device in range(timeline.num_devices)]
    if labels:
        return [" + ".join(visible(labels[stage]) for stage in stages) for stages in lanes]
    return [f"stage{'s' * (len(stages) > 1)} {', '.join(map(str, stages))}" for stages in lanes]


def plan_label(plan: Plan, *, zero1: bool = False) -> str:
    """The choices that hold for a whole plan, in one line."""
    each = " each" if len(plan.pipelines) > 1 else ""
    samples = counted_label(plan.micro_batch, "sample")
    batches = f"{plan.num_microbatches} micro-batch{'es' if plan.num_microbatches != 1 else ''} of {samples}"
    parts = [
        str(plan.schedule),
        *([share_label(plan.share)] if each else []),
        counted_label(len(plan.stages), "stage") + (f" in {plan.chunks} chunks" if plan.chunks > 1 else "") + each,
        (f"{samples} in unequal micro-batches" if plan.is_unequal else batches) + each,
        *([f"{plan.num_sliced} of them halved during warm-up"] if plan.num_sliced else []),
        *(["ZeRO-1"] if zero1 else []),
    ]
    return ", ".join(parts)


def share_label(share: Share) -> str:
    """How many pipelines share the cluster, and what each has, for example `2 pipelines on whole servers`."""
    number = share.num_pipelines
    if set(share.host_splits) <= {number}:
        return f"{counted_label(number, 'pipeline')} on whole servers"
    if set(share.host_splits) == {1}:
        return f"{number} pipelines on 1/{number} of every server"
    return f"{number} pipelines on equal parts of servers"


def status_label(result: Result | WaveResult) -> str:
    """How a search ended, and the limit that ended it, for example `feasible (time limit)`."""
    cut = result.stopped_by is not None and result.status is not Status.INTERRUPTED
    return f"{result.status} ({result.stopped_by})" if cut else str(result.status)


def own_objective_label(own: OwnObjective) -> str:
    """Value and name of what a planner minimises, for example `405.4 ms (latency)`."""
    quantity = own.name.removesuffix(", s")
    value = count_label(own.value) if quantity == own.name else format_seconds(own.value)
    return f"{value} ({quantity})"


def seconds_label(seconds: float | None) -> str:
    """Seconds with a prefix, a dash where unknown."""
    return UNKNOWN if seconds is None else format_seconds(seconds)


def bytes_label(num_bytes: float) -> str:
    """Bytes with a prefix; `unlimited` where infinite."""
    return "unlimited" if math.isinf(num_bytes) else format_bytes(num_bytes)


def bandwidth_label(bytes_per_s: float) -> str:
    """Bytes per second with a prefix; `unlimited` where infinite."""
    return "unlimited" if math.isinf(bytes_per_s) else f"{format_bytes(bytes_per_s)}/s"


def link_label(link: Link) -> str:
    """Bandwidth of a link, for example `12 GB/s measured`: that of the last segment of a table."""
    return bandwidth_label(link.large_message_bytes_per_s) + (" measured" if link.table else "")


def table_label(points: Points) -> str:
    """The range of measured times, for example `measured, 10 us at 1 kB to 1.4 ms at 16 MB`."""
    ends = (f"{format_seconds(seconds)} at {format_bytes(num_bytes)}" for num_bytes, seconds in (points[0], points[-1]))
    return f"measured, {' to '.join(dict.fromkeys(ends))}"


def count_label(count: float) -> str:
    """A large number with a prefix and three digits, for example `1.56 G`."""
    for size, unit in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(count) >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.3g}"


def counted_label(count: int, one: str) -> str:
    """A number of things, for example `1 stage` or `2 stages`."""
    return f"{count} {one if count == 1 else one + 's'}"


def percent_label(share: float | None) -> str:
    """A share in percent with two decimals, a dash where unknown."""
    return UNKNOWN if share is None else f"{100 * share:.2f} %"


def _slots(slots: list[str]) -> str:
    run = [str(index) for index in range(int(slots[0]), int(slots[0]) + len(slots))] if slots[0].isdecimal() else []
    return f"{slots[0]}-{slots[-1]}" if len(slots) > 1 and slots == run else ",".join(slots)
