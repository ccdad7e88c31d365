"""A plan as people read it: the stages, then the numbers of one iteration."""

import click

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.cli.views.run import print_lines
from stagecut.planner.core.result import Result
from stagecut.planner.report.labels import own_objective_label, percent_label, plan_label, seconds_label
from stagecut.planner.report.memory_table import memory_tables
from stagecut.planner.report.stage_tables import stage_tables
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.throughput_lines import throughput_lines


def headline(played: Played) -> str:
    """Model, cluster, and the choices that hold for the whole plan."""
    problem = played.problem
    return f"{problem.model.name} on {problem.cluster.name}: {plan_label(played.plan, zero1=problem.job.zero1)}"


def print_plan(played: Played) -> None:
    """The choices that hold for the whole plan, and a table of its stages."""
    click.echo(f"{headline(played)}\n")
    tables = stage_tables(played.problem, played.plan, costs=played.costs, timeline=played.timeline)
    print_table(*tables)
    if (num_pipelines := len(played.plan.pipelines)) > 1:
        click.echo(f"the first of {num_pipelines} pipelines; the others are the same on other devices")


def print_memory(played: Played) -> None:
    """What fills the memory of each stage's devices."""
    click.echo()
    print_table(*memory_tables(played.plan.stages, played.memory, played.costs.limit_bytes.tolist()))


def print_numbers(played: Played, result: Result | None = None) -> None:
    """Times of one iteration; with a result also what is proven about them, and what its solver minimised instead."""
    timeline = played.timeline
    rows = [("iteration time", seconds_label(timeline.iteration_s))]
    if result is not None:
        rows += [("lower bound", seconds_label(result.bound_s)), ("gap", percent_label(result.gap))]
        if result.own_objective is not None:
            rows.append(("own objective", own_objective_label(result.own_objective)))
    rows.append(("bubbles", percent_label(timeline.bubble_fraction)))
    rows += throughput_lines(played.throughput, num_devices=played.problem.cluster.num_devices)
    click.echo()
    print_lines(tuple(rows))
