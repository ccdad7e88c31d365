"""Measurements, for people and as JSON."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import click
from rich.table import Table

from stagecut.planner.core.cluster import Cluster
from stagecut.planner.core.units import format_bytes, format_seconds
from stagecut.planner.report.labels import bandwidth_label, count_label
from stagecut.planner.report.summary import SCHEMA, values_of
from stagecut.planner.report.tables import device_type_table
from stagecut.planner.report.text_table import print_table, text_table

if TYPE_CHECKING:
    from stagecut.executor.measure.curves import Curve
    from stagecut.executor.measure.profile_links import RankMeasurement
    from stagecut.executor.measure.profile_model import ModelMeasurement, ProfileChoices, SizeTimes

CONTAMINATED = "contaminated: other programs used the processors in every repetition; measure again on an idle machine"


def print_model(measurement: "ModelMeasurement", choices: "ProfileChoices") -> None:
    """Layers at the largest micro-batch size, then the stage at every size."""
    times = measurement.times[-1]
    processes = "1 process" if choices.processes == 1 else f"{choices.processes} processes at once"
    click.echo(f"{measurement.name} in {choices.precision} on {measurement.device_title}, {processes}")
    click.echo(f"device type {measurement.device_type}; layers with micro-batches of {times.samples}:\n")
    print_table(_layer_table(measurement, times))
    click.echo("\nthe timed layers as one stage:\n")
    print_table(_stage_table(measurement))
    if measurement.update is not None:
        bandwidth = bandwidth_label(measurement.update_bandwidth_bytes_per_s or 0.0)
        params = f"{count_label(measurement.num_updated_params)} parameters"
        seconds = format_seconds(measurement.update.total_s)
        click.echo(f"\noptimizer step of {params}: {seconds}, equivalent to a memory bandwidth of {bandwidth}")
    if measurement.contaminated:
        click.echo(f"\n{CONTAMINATED}")


def model_answer(measurement: "ModelMeasurement", choices: "ProfileChoices", *, profile_name: str) -> dict[str, object]:
    """All measurements as JSON."""
    update = measurement.update
    return {
        "schema": SCHEMA,
        "model": profile_name,
        "device": measurement.device_title,
        "device_type": measurement.device_type,
        "precision": str(choices.precision),
        **values_of(choices, "processes", "threads", "in_flight"),
        "left_out": list(measurement.left_out),
        "contaminated": measurement.contaminated,
        "stage": [_stage_answer(times) for times in measurement.times],
        "layers": list(_layer_answers(measurement)),
        "update": None
        if update is None
        else {
            "params": measurement.num_updated_params,
            "update_s": update.total_s,
            "update_spread_s": float(update.spread_s.sum()),
            "memory_bandwidth_bytes_per_s": measurement.update_bandwidth_bytes_per_s,
            "contaminated": update.contaminated,
        },
    }


def print_links(found: Sequence["RankMeasurement"], cluster: Cluster) -> None:
    """Devices, then seconds by message size."""
    print_table(device_type_table(cluster.device_types))
    click.echo("\ntime per message:\n")
    curves = dict(_curves(cluster))
    rows = (
        (f"{points[0][0]:.0f}", *(format_seconds(seconds) for _, seconds in points))
        for points in zip(*curves.values(), strict=True)
    )
    print_table(text_table(rows, right=("bytes", *curves)))
    if _contaminated(found):
        click.echo(f"\n{CONTAMINATED}")


def links_answer(found: Sequence["RankMeasurement"], cluster: Cluster) -> dict[str, object]:
    """All measurements as JSON, the curves before they were made monotone."""
    return {
        "schema": SCHEMA,
        "cluster": cluster.name,
        "contaminated": _contaminated(found),
        "ranks": [
            {
                "rank": rank,
                "host": each.host_name,
                "device": each.device_title,
                **values_of(each, "device_type", "memory_bytes"),
                "one_way": _by_partner("to_rank", each.one_way),
                "streaming": _by_partner("to_rank", each.streaming),
                "all_reduce": _by_partner("num_ranks", each.all_reduce),
            }
            for rank, each in enumerate(found)
        ],
        "device_types": [
            {
                "name": kind.name,
                "peak_flops_per_s": {str(precision): rate for precision, rate in kind.peak_flops_per_s},
                "memory_bandwidth_bytes_per_s": kind.memory_bandwidth_bytes_per_s,
            }
            for kind in cluster.device_types
        ],
    }


def _layer_table(measurement: "ModelMeasurement", times: "SizeTimes") -> Table:
    right = ("parameters", "saved", "working", "forward", "+-", "backward", "+-", "recomputed")
    seconds = list(zip(*_layer_seconds(times).values(), strict=True))
    rows = []
    for index, layer in enumerate(measurement.facts.layers):
        place = index - measurement.first_layer
        timed = map(format_seconds, seconds[place]) if 0 <= place < len(seconds) else ("-",) * 5
        sizes = (format_bytes(layer.saved_bytes), format_bytes(layer.working_bytes))
        rows.append((layer.name, layer.kind, count_label(layer.num_params), *sizes, *timed))
    return text_table(rows, "layer", "kind", right=right)


def _stage_table(measurement: "ModelMeasurement") -> Table:
    right = ("samples", "forward", "+-", "backward", "+-", "recomputed", "kept", "rejected")
    rows = (
        (
            str(times.samples),
            *map(format_seconds, _stage_seconds(times).values()),
            str(times.num_kept),
            str(times.num_rejected),
            "contaminated" if times.contaminated else "",
        )
        for times in measurement.times
    )
    return text_table(rows, right=right, last=("",))


def _stage_seconds(times: "SizeTimes") -> dict[str, float]:
    return {
        "forward_s": times.whole_s(is_forward=True),
        "forward_spread_s": times.whole_spread_s(is_forward=True),
        "backward_s": times.whole_s(is_forward=False),
        "backward_spread_s": times.whole_spread_s(is_forward=False),
        "recomputed_backward_s": sum(times.recomputed_backward_s),
    }


def _stage_answer(times: "SizeTimes") -> dict[str, object]:
    return {
        **values_of(times, "samples", "contaminated"),
        **_stage_seconds(times),
        "forward_cuts_factor": times.cuts_factor(is_forward=True),
        "backward_cuts_factor": times.cuts_factor(is_forward=False),
        "kept": times.num_kept,
        "rejected": times.num_rejected,
    }


def _layer_seconds(times: "SizeTimes") -> dict[str, tuple[float, ...]]:
    return {
        "forward_s": times.layer_s(is_forward=True),
        "forward_spread_s": times.layer_spread_s(is_forward=True),
        "backward_s": times.layer_s(is_forward=False),
        "backward_spread_s": times.layer_spread_s(is_forward=False),
        "recomputed_backward_s": times.recomputed_backward_s,
    }


def _layer_answers(measurement: "ModelMeasurement") -> Iterator[dict[str, object]]:
    columns = [(times.samples, _layer_seconds(times)) for times in measurement.times]
    for index, layer in enumerate(measurement.facts.layers):
        place = index - measurement.first_layer
        yield {
            **values_of(layer, "name", "kind", "forward_flops", "saved_bytes", "output_bytes", "working_bytes"),
            "params": layer.num_params,
            "shared_params": layer.num_shared_params,
            "allocated_bytes": layer.allocated_bytes or None,
            "times": [
                {"samples": samples, **{key: each[place] for key, each in seconds.items()}}
                for samples, seconds in columns
                if 0 <= place < len(seconds["forward_s"])
            ],
        }


def _curves(cluster: Cluster) -> Iterator[tuple[str, "Curve"]]:
    """Every measured table of the cluster, with its title."""
    for server in cluster.servers:
        for island in server.islands:
            if island.fabric.table:
                yield f"{server.name}, one way", island.fabric.table
            for table in island.all_reduce:
                yield f"{server.name}, all-reduce of {table.num_devices}", table.table
    if cluster.network.table:
        yield "between hosts, one way", cluster.network.table


def _by_partner(key: str, curves: Mapping[int, "Curve"]) -> list[dict[str, object]]:
    return [{key: partner, "table": curve} for partner, curve in sorted(curves.items())]


def _contaminated(found: Sequence["RankMeasurement"]) -> bool:
    """Whether some product or update has no clean repetition; messages are not checked for that."""
    return any(not any(reading.is_clean for reading in readings) for each in found for readings in each.computed)
