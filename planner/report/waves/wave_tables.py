"""Plans of virtual workers as tables: a block of stages for each kind of worker, and what workers wait for."""

from collections.abc import Iterator, Mapping

from rich.table import Table

from stagecut.planner.core.problem import Problem
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


def wait_table(timeline: WaveTimeline) -> Table:
    """Shares of the stages' time, in the long run: how long each worker computes, and what it waits for."""
    steady = timeline.steady
    rows = []
    for number, (own, waits) in enumerate(zip(timeline.costs.workers, steady.waits, strict=True)):
        num_stages = own.worker.num_stages
        shares = (waits.gate_s, waits.pipeline_s, waits.link_s)
        total_s = steady.wave_s * num_stages
        busy = sum(timeline.busy_share[number]) / num_stages
        rows.append(
            (
                str(number),
                str(own.worker.samples_per_wave),
                percent_label(busy),
                *(percent_label(wait_s / total_s if total_s > 0 else None) for wait_s in shares),
            )
        )
    columns = ("samples per wave", "computes", "waits at gates", "for the pipeline", "for links")
    return text_table(rows, "worker", right=columns)
