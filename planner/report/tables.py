"""Tables for people: solvers compared, critical paths, shortages, the catalogue."""

import math
from collections.abc import Iterable, Sequence

from rich.table import Table

from stagecut.planner.core.catalogue import NamedLink
from stagecut.planner.core.cluster import Cluster, DeviceType, Server
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.result import Result, Shortage
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.report.labels import (
    UNKNOWN,
    bandwidth_label,
    bytes_label,
    count_label,
    layer_label,
    link_label,
    percent_label,
    seconds_label,
    status_label,
)
from stagecut.planner.report.text_table import add_row, text_table
from stagecut.planner.report.verdict import time_ratio
from stagecut.planner.simulator.timeline import Timeline


def critical_path_table(timeline: Timeline, *, max_rows: int = 10) -> Table:
    """What takes up the iteration time along the critical path, the longest first."""
    spent: dict[tuple[int, int], list[float]] = {}
    for task in timeline.critical_path:
        seconds = float(timeline.end_s[task] - timeline.start_s[task])
        spent.setdefault((int(timeline.kind[task]), int(timeline.stage[task])), []).append(seconds)
    longest = sorted((-math.fsum(times), *key) for key, times in spent.items() if sum(times) > 0)
    parts = [
        (TaskKind(kind).name.lower().replace("_", " "), str(stage), str(len(spent[kind, stage])), -negated_s)
        for negated_s, kind, stage in longest[:max_rows]
    ]
    if len(longest) > max_rows:
        parts.append(("everything else", UNKNOWN, UNKNOWN, -math.fsum(row[0] for row in longest[max_rows:])))
    return text_table(
        (
            (*head, seconds_label(took_s), percent_label(time_ratio(took_s, timeline.iteration_s)))
            for *head, took_s in parts
        ),
        *("on the critical path", "stage"),
        right=("times", "takes", "of the iteration"),
    )


def comparison_table(results: Sequence[Result]) -> Table:
    """One row per solver, in the order given."""
    best_s = min((result.objective_s for result in results if result.objective_s is not None), default=math.nan)
    rows = (
        (
            result.solver,
            status_label(result),
            seconds_label(result.objective_s),
            seconds_label(result.bound_s),
            percent_label(result.gap),
            seconds_label(result.seconds),
            UNKNOWN if result.objective_s is None else f"{time_ratio(result.objective_s, best_s):.3f}",
        )
        for result in results
    )
    return text_table(rows, "solver", "status", right=("time", "bound", "gap", "search time", "x slower than best"))


def shortage_table(model: ModelProfile, shortages: Iterable[Shortage]) -> Table:
    """Why no plan fits: the stages that lack memory in the plan that comes closest."""
    rows = (
        (
            shortage.device_type,
            layer_label(model, *shortage.layers),
            *map(bytes_label, (shortage.needed_bytes, shortage.limit_bytes, shortage.short_bytes)),
            shortage.remedy,
        )
        for shortage in shortages
    )
    return text_table(rows, "device type", "layers", right=("needs", "has", "short by"), last=("suggested fix",))


def layer_table(model: ModelProfile) -> Table:
    """Every layer of a model with its costs per sample."""
    rows = (
        (
            str(index),
            layer.name,
            layer.kind,
            count_label(layer.params_bytes / model.precision.num_bytes),
            count_label(layer.forward_flops),
            *map(bytes_label, (layer.saved_bytes, layer.working_bytes, float(crossing))),
        )
        for index, (layer, crossing) in enumerate(zip(model.layers, model.boundary_bytes()[1:], strict=True))
    )
    columns = ("parameters", "forward FLOPs", "saved", "working", "passed on")
    return text_table(rows, "layer", "name", "kind", right=columns)


def model_table(models: Iterable[ModelProfile]) -> Table:
    """One row per model."""
    rows = (
        (
            model.name,
            str(model.num_layers),
            str(len(model.skip_edges)),
            count_label(model.num_params),
            count_label(sum(layer.forward_flops for layer in model.layers)),
            UNKNOWN if model.sequence_length is None else str(model.sequence_length),
        )
        for model in models
    )
    columns = ("layers", "skip edges", "parameters", "forward FLOPs per sample", "tokens per sample")
    return text_table(rows, "model", right=columns)


def cluster_table(clusters: Iterable[Cluster]) -> Table:
    """One row per class of servers, under the cluster's name."""
    table = text_table((), "cluster", right=("devices",), last=("servers", "fabric", "interface"))
    for cluster in clusters:
        for index, server in enumerate(cluster.servers):
            head = (cluster.name, str(cluster.num_devices)) if index == 0 else ("", "")
            fabrics = ", ".join(dict.fromkeys(link_label(island.fabric) for island in server.islands))
            add_row(table, (*head, _server_label(cluster, server), fabrics, link_label(server.nic)))
        table.add_section()
    return table


def link_table(links: Iterable[NamedLink]) -> Table:
    """One row per link of the catalogue, with the source of its figures."""
    rows = (
        (
            named.name,
            f"{named.use}{', shared' if named.shared else ''}",
            bandwidth_label(named.link.bandwidth_bytes_per_s),
            format_seconds(named.link.latency_s),
            named.link.source,
        )
        for named in links
    )
    return text_table(rows, "link", "use", right=("bandwidth", "latency"), last=("source",))


def device_type_table(kinds: Iterable[DeviceType]) -> Table:
    """One row per device type, with the source of its figures."""
    rows = (
        (
            kind.name,
            ", ".join(f"{precision} {count_label(flops)}FLOP/s" for precision, flops in kind.peak_flops_per_s),
            bytes_label(kind.memory_bytes),
            bandwidth_label(kind.memory_bandwidth_bytes_per_s),
            percent_label(kind.efficiency),
            kind.source,
        )
        for kind in kinds
    )
    return text_table(rows, "device type", "peak", right=("memory", "memory bandwidth", "efficiency"), last=("source",))


def _server_label(cluster: Cluster, server: Server) -> str:
    islands = " + ".join(
        f"{island.count} x {island.device_type} {bytes_label(cluster.device_type(island.device_type).memory_bytes)}"
        for island in server.islands
    )
    return f"{server.count} x ({islands})"
