"""A plan of virtual workers as people and programs read it."""

import click

from stagecut.planner.analysis.wave_prediction import PlayedWaves
from stagecut.planner.cli.views.run import print_lines
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_result import WavePoint, WaveResult
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.report.labels import count_label, percent_label
from stagecut.planner.report.summary import throughput_summary, values_of
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.waves.wave_labels import wave_plan_label
from stagecut.planner.report.waves.wave_numbers import wave_numbers
from stagecut.planner.report.waves.wave_summary import wave_simulation_summary
from stagecut.planner.report.waves.wave_tables import wave_stage_tables
from stagecut.planner.report.waves.wave_verdict import rate_label


def rate_words(point: WavePoint | None) -> str:
    """Best throughput, bound and gap of a search while it runs."""
    best, bound = (None, None) if point is None else (point.samples_per_s, point.bound_samples_per_s)
    gap = (bound - best) / bound if best is not None and bound else None
    return f"best {rate_label(best)}  bound {rate_label(bound)}  gap {percent_label(gap)}"


def wave_headline(played: PlayedWaves) -> str:
    """Model, cluster, and the choices that hold for all workers."""
    problem = played.problem
    return f"{problem.model.name} on {problem.cluster.name}: {wave_plan_label(played.plan)}"


def print_wave_plan(played: PlayedWaves) -> None:
    """The choices that hold for all workers, and their stages by kind of worker."""
    click.echo(f"{wave_headline(played)}\n")
    print_table(*wave_stage_tables(played.problem, played.timeline))


def print_wave_numbers(played: PlayedWaves, result: WaveResult | None = None) -> None:
    """Throughput, staleness, traffic; with a result also what is proven about the throughput."""
    click.echo()
    print_lines(tuple(wave_numbers(played, result)))


def wave_row(result: WaveResult) -> dict[str, object]:
    """The answer of a search without its plan."""
    names = ("solver", "status", "stopped_by", "samples_per_s", "bound_samples_per_s", "gap", "seconds", "reason")
    return {**values_of(result, *names), "fault": None if result.fault is None else result.fault.reason}


def wave_summary(played: PlayedWaves) -> dict[str, object]:
    """Throughput, staleness and traffic; times, memory and waits of every worker."""
    simulated = wave_simulation_summary(played.timeline)
    staleness = values_of(played, "s_local", "s_global", "weight_versions")
    return {**throughput_summary(played.throughput), **simulated, **staleness}


def wave_problem_summary(problem: Problem) -> dict[str, object]:
    """Sizes of a problem of virtual workers, and what is left open, as plain values."""
    job = problem.job
    return {
        "model": problem.model.name,
        "layers": problem.model.num_layers,
        "params": problem.model.num_params,
        "cluster": problem.cluster.name,
        "servers": sum(server.count for server in problem.cluster.servers),
        "devices": problem.cluster.num_devices,
        "minibatch": job.micro_batches[0],
        "waves": None if job.waves is None else tree_of(job.waves),
    }


def print_wave_problem(problem: Problem) -> None:
    """The same for people."""
    model, cluster, job = problem.model, problem.cluster, problem.job
    kinds = ", ".join(dict.fromkeys(device.device_type for device in cluster.devices()))
    rows = [
        ("model", f"{model.name}: {model.num_layers} layers, {count_label(model.num_params)} parameters"),
        ("cluster", f"{cluster.name}: {cluster.num_devices} devices ({kinds})"),
        (
            "job",
            f"minibatches of {job.micro_batches[0]}, {job.precision}, {job.optimizer.name}, recompute {job.recompute}",
        ),
        *((name.replace("_", " "), str(value)) for name, value in tree_of(job.waves).items()),
    ]
    print_lines(tuple(rows))
