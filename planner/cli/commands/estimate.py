"""`plan estimate`: whether a layout fits in memory, and how fast it is."""

from pathlib import Path

import click

from stagecut.planner.analysis.layout import play_layout, stages_short
from stagecut.planner.analysis.layout_changes import LayoutChange, fitting_changes
from stagecut.planner.analysis.prediction import Played, play
from stagecut.planner.cli.options.layout import LayoutOptions
from stagecut.planner.cli.options.outputs import Pictures
from stagecut.planner.cli.options.prices import PriceOptions
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.answers import EXIT_CODES
from stagecut.planner.cli.views.plan import print_memory, print_numbers, print_plan
from stagecut.planner.core.result import Status
from stagecut.planner.io.files.plan_file import read_plan_file
from stagecut.planner.report.fit import change_table, fit_sentence
from stagecut.planner.report.summary import simulation_summary, values_of
from stagecut.planner.report.text_table import print_table


@click.command(
    "estimate",
    cls=SectionCommand,
    epilog=example(
        "plan estimate --model llama3-8b --cluster a100-v100-32 --global-batch 256 --micro-batch 2 \\",
        "    --stages 4 --tensor-parallel 4 --pipelines 2",
        "plan estimate plan.json",
    ),
)
@click.argument("path", metavar="[PLAN]", type=InputFile(), required=False)
@option_group(LayoutOptions, argument="options")
@option_group(PriceOptions, argument="prices")
@option_group(Pictures, argument="pictures")
@general_options
def command(
    path: Path | None, options: LayoutOptions, prices: PriceOptions, pictures: Pictures, *, as_json: bool
) -> None:
    """Say whether a layout fits in memory and how fast it is.

    Takes a plan file, or a layout made by hand: equal layer counts, or --cuts, on one device group after another.
    Nothing is searched for. A layout that does not fit is simulated too, the changes that would make it fit are
    listed, and the exit code is 4.
    """
    pictures.check()
    changes: tuple[LayoutChange, ...] = ()
    if path is not None:
        options.refuse()
        plan_file = read_plan_file(path)
        played = play(prices.priced(plan_file.problem), plan_file.plan)
        short = stages_short(played.costs)
    else:
        options.require_inputs()
        layout, problem = options.layout(), prices.priced(options.problem())
        played = play_layout(problem, layout)
        short = stages_short(played.costs)
        changes = fitting_changes(problem, layout) if short else ()
    try:
        pictures.draw(played)
    finally:
        if as_json:
            print_json({**simulation_summary(played), **_fit_tree(played, short, changes)})
        else:
            _print_for_people(played, short, changes)
    announce(pictures.paths)
    click.get_current_context().exit(EXIT_CODES[Status.INFEASIBLE] if short else 0)


def _print_for_people(played: Played, short: tuple[int, ...], changes: tuple[LayoutChange, ...]) -> None:
    print_plan(played)
    print_memory(played)
    print_numbers(played)
    click.echo(f"\n{fit_sentence(played, short)}")
    if changes:
        click.echo()
        print_table(change_table(changes, played.timeline.iteration_s))
    elif short:
        click.echo("plan solve searches for a plan that fits")


def _fit_tree(played: Played, short: tuple[int, ...], changes: tuple[LayoutChange, ...]) -> dict[str, object]:
    used, limits = played.costs.memory_bytes.tolist(), played.costs.limit_bytes.tolist()
    return {
        "fits": not short,
        "short_stages": [{"stage": index, "short_bytes": used[index] - limits[index]} for index in short],
        "changes": [values_of(change, "options", "iteration_s") for change in changes],
    }
