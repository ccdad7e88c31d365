"""A problem as people and programs read it, with the size of its search space."""

import click

from planner.core.problem import Problem
from planner.network.places import build_places
from planner.report.labels import count_label


def problem_summary(problem: Problem) -> dict[str, object]:
    """Sizes of a problem and of its search space, as plain values."""
    num_layers = problem.model.num_layers
    return {
        "model": problem.model.name,
        "layers": num_layers,
        "params": problem.model.num_params,
        "cluster": problem.cluster.name,
        "servers": sum(server.count for server in problem.cluster.servers),
        "devices": problem.cluster.num_devices,
        "global_batch": problem.job.global_batch,
        "max_stages": problem.max_stages,
        "stage_intervals": num_layers * (num_layers + 1) // 2,
        "variants": [
            {
                "schedule": str(variant.schedule),
                "micro_batch": variant.micro_batch,
                "num_microbatches": variant.num_microbatches,
                "placements": _num_placements(problem, variant.micro_batch),
            }
            for variant in problem.variants
        ],
    }


def print_problem(problem: Problem) -> None:
    """The same for people."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    kinds = ", ".join(dict.fromkeys(device.device_type for device in cluster.devices()))
    click.echo(f"model       {model.name}: {model.num_layers} layers, {count_label(model.num_params)} parameters")
    click.echo(f"cluster     {cluster.name}: {cluster.num_devices} devices ({kinds})")
    click.echo(f"job         global batch {job.global_batch}, {job.precision}, {job.optimizer.name}")
    click.echo(f"recompute   {job.recompute}")
    click.echo(f"stages      up to {problem.max_stages}, of {model.num_layers * (model.num_layers + 1) // 2} runs of layers")
    click.echo(f"variants    {len(problem.variants)}")
    for variant in problem.variants:
        batches = f"{variant.num_microbatches} x {variant.micro_batch}"
        places = f"{_num_placements(problem, variant.micro_batch)} kinds of device groups"
        click.echo(f"  {variant.schedule:<12} {batches:<10} {places}")


def _num_placements(problem: Problem, micro_batch: int) -> int:
    """Device groups a stage may have, alike ones counted once."""
    return len(build_places(problem.cluster, problem.job, micro_batch=micro_batch).options)
