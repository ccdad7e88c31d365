"""A problem as people and programs read it, with the size of its search space."""

import math

import click

from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.share import cluster_share
from stagecut.planner.network.host_states import build_host_states
from stagecut.planner.report.labels import count_label, share_label
from stagecut.planner.report.summary import values_of


def num_groups(problem: Problem, variant: Variant) -> int:
    """Number of device groups that may hold a stage, alike ones counted once."""
    own = cluster_share(problem.cluster, variant.share)
    states = build_host_states(problem, own, micro_batch=variant.micro_batch)
    return len({option.placement for option in states.options})


def problem_summary(problem: Problem) -> dict[str, object]:
    """Sizes of a problem and of its search space, as plain values."""
    variants = problem.variants
    alike = {(variant.share, variant.micro_batch): variant for variant in variants}
    groups = {key: num_groups(problem, variant) for key, variant in alike.items()}
    return {
        "model": problem.model.name,
        "layers": problem.model.num_layers,
        "params": problem.model.num_params,
        "cluster": problem.cluster.name,
        "servers": sum(server.count for server in problem.cluster.servers),
        "devices": problem.cluster.num_devices,
        "global_batch": problem.job.global_batch,
        "max_stages": problem.max_stages,
        "stage_intervals": _num_intervals(problem),
        "variants": [
            {
                **values_of(variant, "schedule", "micro_batch", "num_microbatches", "chunks"),
                "pipelines": variant.share.num_pipelines,
                "host_splits": variant.share.host_splits,
                "device_groups": groups[variant.share, variant.micro_batch],
            }
            for variant in variants
        ],
    }


def print_problem(problem: Problem) -> None:
    """The same for people."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    kinds = ", ".join(dict.fromkeys(device.device_type for device in cluster.devices()))
    optimizer = f"{job.optimizer.name} with ZeRO-1" if job.zero1 else job.optimizer.name
    labels = (f"{each.schedule} x{each.chunks}" if each.chunks > 1 else str(each.schedule) for each in problem.variants)
    schedules = ", ".join(dict.fromkeys(labels))
    rows = [
        ("model", f"{model.name}: {model.num_layers} layers, {count_label(model.num_params)} parameters"),
        ("cluster", f"{cluster.name}: {cluster.num_devices} devices ({kinds})"),
        ("job", f"global batch {job.global_batch}, {job.precision}, {optimizer}, recompute {job.recompute}"),
        ("stages", f"up to {problem.max_stages}, each one of {_num_intervals(problem)} ranges of layers"),
        ("variants", f"{len(problem.variants)}: {schedules}, each with these micro-batches"),
    ]
    first = problem.variants[0]  # every other schedule has the same shares and micro-batches
    for variant in problem.variants:
        if (variant.schedule, variant.chunks) != (first.schedule, first.chunks):
            continue
        batches = f"{variant.num_microbatches} x {variant.micro_batch}"
        share = f" in each of {share_label(variant.share)}" if variant.share.num_pipelines > 1 else ""
        rows.append(("", f"{batches:<10} {num_groups(problem, variant)} kinds of device groups{share}"))
    for name, value in rows:
        click.echo(f"{name:<10} {value}")


def _num_intervals(problem: Problem) -> int:
    return math.comb(problem.model.num_layers + 1, 2)
