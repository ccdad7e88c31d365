"""`plan simulate`: play one iteration of a plan file."""

import sys
from pathlib import Path

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import Pictures, announce, picture_options, print_json
from stagecut.planner.cli.prediction import play
from stagecut.planner.cli.views.plan import print_numbers, print_plan
from stagecut.planner.io.files.plan_file import read_plan_file
from stagecut.planner.report.summary import simulation_summary
from stagecut.planner.report.tables import critical_path_table
from stagecut.planner.report.text_table import print_table


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
