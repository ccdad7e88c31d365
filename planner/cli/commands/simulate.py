"""`plan simulate`: play one iteration of a plan file."""

from pathlib import Path

import click

from stagecut.planner.analysis.prediction import play
from stagecut.planner.cli.options.outputs import Pictures
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.plan import print_numbers, print_plan
from stagecut.planner.io.files.plan_file import read_plan_file
from stagecut.planner.report.summary import simulation_summary
from stagecut.planner.report.tables import critical_path_table
from stagecut.planner.report.text_table import print_table


@click.command("simulate", epilog=example("plan simulate plan.json --trace trace.json --gantt plan.png"))
@click.argument("path", metavar="PLAN", type=InputFile())
@option_group(Pictures, argument="pictures")
@general_options
def command(path: Path, pictures: Pictures, *, as_json: bool) -> None:
    """Simulate one iteration of a plan file.

    Shows what each stage runs and for how long, its memory, how busy it is, and what takes up the
    iteration time along the critical path.
    """
    plan_file = read_plan_file(path)
    pictures.check()
    played = play(plan_file.problem, plan_file.plan)
    try:
        pictures.draw(played)
    finally:
        if as_json:
            summary = simulation_summary(played.plan, costs=played.costs, timeline=played.timeline)
            print_json({**summary, "samples_per_s": played.samples_per_s})
        else:
            print_plan(played)
            print_numbers(played)
            click.echo()
            print_table(critical_path_table(played.timeline))
    announce(pictures.paths)
