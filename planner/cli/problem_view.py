"""A problem as people and programs read it, with the size of its search space."""

import click

from planner.core.problem import Problem
from planner.network.places import build_places
from planner.report.labels import count_label


def num_groups(problem: Problem, micro_batch: int) -> int:
    """Device groups that a stage may have, alike ones counted once."""
    places = build_places(problem.cluster, problem.job, micro_batch=micro_batch)
    return len({option.placement for option in places.options})


def problem_summary(problem: Problem) -> dict[str, object]:
    """Sizes of a problem and of its search space, as plain values."""
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
                "schedule": str(variant.schedule),
                "micro_batch": variant.micro_batch,
                "num_microbatches": variant.num_microbatches,
                "device_groups": num_groups(problem, variant.micro_batch),
            }
            for variant in problem.variants
        ],
    }


def print_problem(problem: Problem) -> None:
    """The same for people."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    kinds = ", ".join(dict.fromkeys(device.device_type for device in cluster.devices()))
    rows = [
        ("model", f"{model.name}: {model.num_layers} layers, {count_label(model.num_params)} parameters"),
        ("cluster", f"{cluster.name}: {cluster.num_devices} devices ({kinds})"),
        ("job", f"global batch {job.global_batch}, {job.precision}, {job.optimizer.name}, recompute {job.recompute}"),
        ("stages", f"up to {problem.max_stages}, each one of {_num_intervals(problem)} runs of layers"),
        ("variants", str(len(problem.variants))),
    ]
    for variant in problem.variants:
        batches = f"{variant.num_microbatches} x {variant.micro_batch}"
        places = f"{num_groups(problem, variant.micro_batch)} kinds of device groups"
        rows.append(("", f"{variant.schedule:<12} {batches:<10} {places}"))
    for name, value in rows:
        click.echo(f"{name:<10} {value}")


def _num_intervals(problem: Problem) -> int:
    num_layers = problem.model.num_layers
    return num_layers * (num_layers + 1) // 2
