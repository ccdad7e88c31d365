"""Plans of virtual workers as tables: a block of stages for each kind of worker, and what workers wait for."""

from collections.abc import Iterator, Mapping
from itertools import groupby

from rich.table import Table

from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.waves.wave_costs import WaveCosts
from stagecut.planner.report.labels import (
    UNKNOWN,
    bytes_label,
    device_label,
    layer_label,
    percent_label,
    run_label,
    seconds_label,
)
from stagecut.planner.report.text_table import chosen_columns, text_table
from stagecut.planner.report.waves.wave_labels import kind_label, worker_kinds
from stagecut.planner.simulator.waves.timeline import WaveTimeline

TEXT = frozenset({"worker", "stage", "layers", "device type", "devices", "recompute", "servers"})
"""Columns aligned to the left; the others are numbers."""
WIDE = (
    *("worker", "stage", "layers", "device type", "devices", "recompute", "servers"),
    *("ahead", "F", "B", "step", "transfer", "pushed", "memory used", "limit", "busy"),
)
MEDIUM = ("worker", "stage", "layers", "devices", "recompute", "ahead", "F", "B", "step", "memory / limit", "busy")
NARROW = ("worker", "layers", "devices", "recompute", "F", "B", "memory / limit", "busy")


Blocks = list[list[Mapping[str, str]]]
"""Rows by kind of worker."""


def wave_stage_tables(problem: Problem, timeline: WaveTimeline) -> tuple[Table, ...]:
    """A block for each kind of worker, with a row for each stage: what runs where, how long, how full, how busy.

    The table with everything comes first, then the same with fewer and fewer columns. `ahead` is how many minibatches a
    stage forwards before its first backward, `step` its local step, `pushed` what it pushes once a wave.
    """
    blocks: Blocks = [list(_rows(problem, timeline, kind)) for kind in worker_kinds(timeline.costs)]
    numbered: Blocks = [[{**row, "layers": row["run"]} for row in block] for block in blocks]
    recomputes = any(row["recompute"] == "yes" for block in blocks for row in block)
    served = any(row["servers"] != UNKNOWN for block in blocks for row in block)
    hidden = {*(() if recomputes else ("recompute",)), *(() if served else ("servers", "pushed"))}
    versions = ((blocks, WIDE), (blocks, MEDIUM), (numbered, MEDIUM), (numbered, NARROW))
    return tuple(_in_blocks(shown, [name for name in columns if name not in hidden]) for shown, columns in versions)


def _in_blocks(blocks: Blocks, columns: list[str]) -> Table:
    table = chosen_columns([row for block in blocks for row in block], columns, text=TEXT)
    last = -1
    for block in blocks:
        last += len(block)
        table.rows[last].end_section = True
    return table


def _rows(problem: Problem, timeline: WaveTimeline, kind: tuple[int, ...]) -> Iterator[Mapping[str, str]]:
    """Stages of one kind of worker, each with its devices in all of them."""
    types = {device.name: device.device_type for device in problem.cluster.devices()}
    workers, first = timeline.costs.plan.workers, kind[0]
    costs = timeline.costs.workers[first]
    for index, stage in enumerate(costs.worker.stages):
        devices = tuple(workers[number].devices[index] for number in kind)
        exchanges = [each for number in kind for each in timeline.costs.workers[number].exchanges[index]]
        pushed = sum(each.push_bytes for each in costs.exchanges[index])
        used, limit = (bytes_label(float(column[index])) for column in (costs.memory_bytes, costs.limit_bytes))
        yield {
            "worker": kind_label(kind) if index == 0 else "",
            "stage": str(index),
            "layers": layer_label(problem.model, stage.start, stage.stop),
            "run": run_label(stage.start, stage.stop),
            "device type": ", ".join(dict.fromkeys(types[name] for name in devices)),
            "devices": device_label(devices),
            "recompute": "yes" if stage.recompute else "no",
            "servers": ", ".join(dict.fromkeys(each.owner for each in exchanges)) or UNKNOWN,
            "ahead": str(stage.warmup_depth),
            "F": seconds_label(float(costs.forward_s[index])),
            "B": seconds_label(float(costs.backward_s[index])),
            "step": seconds_label(float(costs.update_s[index])),
            "transfer": seconds_label(float(costs.transfer_s[index]) if index + 1 < costs.worker.num_stages else None),
            "pushed": bytes_label(pushed) if exchanges else UNKNOWN,
            "memory used": used,
            "limit": limit,
            "memory / limit": f"{used} / {limit}",
            "busy": percent_label(timeline.busy_share[first][index]),
        }


WAITS = ("computes", "waits at gates", "for the pipeline", "for links")
"""What the time of stages goes to."""


def wait_table(timeline: WaveTimeline) -> Table:
    """Shares of the stages' time, in the long run: how long each worker computes, and what it waits for."""
    rows = (
        (str(number), str(worker.samples_per_wave), *map(percent_label, wait_shares(timeline, number)))
        for number, worker in enumerate(timeline.costs.plan.workers)
    )
    return text_table(rows, "worker", right=("samples per wave", *WAITS))


def wait_shares(timeline: WaveTimeline, worker: int) -> tuple[float | None, ...]:
    """A worker's row of :func:`wait_table`, None where nothing takes any time."""
    waits, busy = timeline.steady.waits[worker], timeline.busy_share[worker]
    total_s = timeline.steady.wave_s * len(busy)
    waited_s = (waits.gate_s, waits.pipeline_s, waits.link_s)
    return sum(busy) / len(busy), *(wait_s / total_s if total_s > 0 else None for wait_s in waited_s)


def server_table(costs: WaveCosts) -> Table:
    """One row for each parameter server: the layers that it owns, and what it gets and sends once a wave."""
    owners = costs.plan.owners
    exchanges = [each for own in costs.workers for stage in own.exchanges for each in stage]
    rows = (
        (
            owner,
            ", ".join(run_label(start, stop) for start, stop in _runs_of(owners, owner)),
            bytes_label(sum(each.push_bytes for each in exchanges if each.owner == owner)),
            bytes_label(sum(each.pull_bytes for each in exchanges if each.owner == owner)),
        )
        for owner in dict.fromkeys(owners)
    )
    return text_table(rows, "server", "layers", right=("pushed to it", "pulled from it"))


def _runs_of(owners: tuple[str, ...], owner: str) -> Iterator[tuple[int, int]]:
    """Runs [start, stop) of the layers of one owner."""
    start = 0
    for name, run in groupby(owners):
        stop = start + len(list(run))
        if name == owner:
            yield start, stop
        start = stop


def all_reduce_table(costs: WaveCosts) -> Table:
    """One row for each all-reduce of a wave."""
    rows = (
        (run_label(*each.layers), seconds_label(each.seconds), bytes_label(each.crossing_bytes))
        for each in costs.all_reduces
    )
    return text_table(rows, "layers", right=("takes", "across hosts"))
