"""`plan simulate`: play one iteration of a plan file."""

import sys
from pathlib import Path

import click

from planner.cli.example import example
from planner.cli.files import InputFile
from planner.cli.option_groups import general_options
from planner.cli.outputs import Pictures, announce, picture_options, print_json
from planner.cli.plan_view import print_numbers, print_plan
from planner.cli.prediction import play
from planner.io.plan_file import read_plan_file
from planner.report.summary import simulation_summary
from planner.report.tables import critical_path_table
from planner.report.text_table import print_table


@click.command("simulate", epilog=example("plan simulate plan.json --trace trace.json --gantt plan.png"))
@click.argument("path", metavar="PLAN", type=InputFile())
@picture_options
@general_options
def command(path: Path, pictures: Pictures, *, as_json: bool) -> None:
    """Play one iteration of a plan file.

    Shows what each stage runs and how long, its memory, how busy it is, and what the iteration
    time is spent on along the critical path.
    """
    plan_file = read_plan_file(path)
    pictures.check()
    played = play(plan_file.problem, plan_file.plan)
    try:
        written = pictures.write(played.plan, played.timeline, title=played.problem.model.name)
    finally:
        if as_json:
            summary = simulation_summary(played.plan, costs=played.costs, timeline=played.timeline)
            print_json({**summary, "samples_per_s": played.samples_per_s})
        else:
            print_plan(played)
            print_numbers(played)
            click.echo()
            print_table(critical_path_table(played.timeline), sys.stdout)
    announce(written)
