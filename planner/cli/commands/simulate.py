"""`plan simulate`: play one iteration of a plan file."""

from pathlib import Path

import click

from stagecut.planner.analysis.prediction import Played, play
from stagecut.planner.analysis.wave_prediction import PlayedWaves, play_waves
from stagecut.planner.cli.options.outputs import Pictures
from stagecut.planner.cli.options.prices import PriceOptions
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.plan import print_memory, print_numbers, print_plan
from stagecut.planner.cli.views.wave_plan import print_wave_numbers, print_wave_plan, wave_summary
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, read_any_plan_file
from stagecut.planner.report.summary import simulation_summary
from stagecut.planner.report.tables import critical_path_table
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.waves.wave_tables import wait_table


@click.command(
    "simulate", cls=SectionCommand, epilog=example("plan simulate plan.json --trace trace.json --gantt plan.png")
)
@click.argument("path", metavar="PLAN", type=InputFile())
@option_group(PriceOptions, argument="prices")
@option_group(Pictures, argument="pictures")
@general_options
def command(path: Path, prices: PriceOptions, pictures: Pictures, *, as_json: bool) -> None:
    """Simulate one iteration of a plan file.

    Shows what each stage runs and for how long, its memory, how busy it is, and what takes up the
    iteration time along the critical path. Virtual workers are simulated together until their waves repeat.
    """
    plan_file = read_any_plan_file(path)
    problem = prices.priced(plan_file.problem)
    pictures.check()
    if isinstance(plan_file, WavePlanFile):
        _simulate_waves(play_waves(problem, plan_file.plan), pictures, as_json=as_json)
    else:
        _simulate(play(problem, plan_file.plan), pictures, as_json=as_json)
    announce(pictures.paths)


def _simulate(played: Played, pictures: Pictures, *, as_json: bool) -> None:
    try:
        pictures.draw(played)
    finally:
        if as_json:
            print_json(simulation_summary(played))
        else:
            print_plan(played)
            print_memory(played)
            print_numbers(played)
            click.echo()
            print_table(critical_path_table(played.timeline))


def _simulate_waves(played: PlayedWaves, pictures: Pictures, *, as_json: bool) -> None:
    try:
        pictures.draw_waves(played)
    finally:
        if as_json:
            print_json(wave_summary(played))
        else:
            print_wave_plan(played)
            print_wave_numbers(played)
            click.echo()
            print_table(wait_table(played.timeline))
