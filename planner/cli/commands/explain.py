"""`plan explain`: show what limits a plan, and what more hardware would bring."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from stagecut.planner.analysis.prediction import Played, play
from stagecut.planner.analysis.stated_options import option_values
from stagecut.planner.analysis.what_if import WhatIfOutcome, certified_result, what_if_outcomes
from stagecut.planner.cli.commands.waves.explain_waves import explain_waves
from stagecut.planner.cli.options.search import SearchOptions, solver_option
from stagecut.planner.cli.options.time_notes import note_times
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, option_group, quiet_option
from stagecut.planner.cli.parameters.types import words_of
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import print_fault
from stagecut.planner.cli.views.plan import headline, print_memory
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.core.units import format_seconds
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of
from stagecut.planner.io.files.wave_plan_file import WavePlanFile, read_any_plan_file
from stagecut.planner.report.explanation import binding_summary, binding_table, what_if_summary, what_if_table
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, stage_summaries, throughput_summary, values_of
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.verdict import quality, resting_on
from stagecut.planner.simulator.binding import what_binds
from stagecut.planner.solvers.diagnosis.extra_units import Unit, what_ifs
from stagecut.planner.solvers.registry import run, solver_for
from stagecut.planner.solvers.search.options import SolveOptions


@click.command(
    "explain",
    cls=SectionCommand,
    epilog=example("plan explain plan.json", "plan explain plan.json --what-if server,nic"),
)
@click.argument("path", metavar="PLAN", type=InputFile())
@click.option(
    "--what-if",
    "units",
    type=words_of(Unit),
    default="all",
    show_default=True,
    metavar="LIST|all",
    help=f"Resources to add one unit of: {', '.join(Unit)}.",
)
@solver_option
@option_group(SearchOptions, argument="options", gap="5e-3", time_limit_s="10")
@quiet_option
@general_options
def command(
    path: Path, units: tuple[Unit, ...], solver: str, options: SolveOptions, *, quiet: bool, as_json: bool
) -> None:
    """Show what limits a plan, and what more hardware would bring.

    The limits are the device, the link and the memory that come closest to their capacity. Then the best
    plan is searched for with one more server of each class, with 10 % more memory, and with interfaces and
    fabrics twice as fast; each search starts from this plan. Ctrl-C keeps the rows that are finished.
    Of virtual workers it shows what they wait for, and plans them anew with each unit.
    """
    plan_file = read_any_plan_file(path)
    if isinstance(plan_file, WavePlanFile):
        explain_waves(path, plan_file, units, options, quiet=quiet, as_json=as_json)
        return
    note_times(plan_file.problem)
    played = play(plan_file.problem, plan_file.plan)
    if not quiet and faults(CostModel(plan_file.problem), plan_file.plan):
        note = "the plan is outside the search space (see plan check); searches start without it"
        click.echo(f"{visible(path)}: {note}", err=True)
    with stop_requests() as cancelled:

        def solve(name: str, problem: Problem, start: Plan | None) -> Result:
            chosen = solver_for(solver, problem, rows=options.rows)
            with progress(sys.stderr, quiet=quiet, solver=name) as observer:
                return run(problem, chosen, options, observer=observer, cancelled=cancelled, start=start)

        iteration_s = played.timeline.iteration_s
        outcomes = run_cancellable(lambda: [*what_if_outcomes(plan_file, iteration_s, units, solve)], cancelled)
        is_complete = len(outcomes) == 1 + len([*what_ifs(plan_file.problem, units)])
        for outcome in outcomes:
            print_fault(outcome.result, of=outcome.what)
        if as_json:
            name = solver_for(solver, plan_file.problem, rows=options.rows)
            provenance = provenance_of(plan_file.problem, option_values(options, solver=name), seed=options.seed)
            answer = {
                "schema": SCHEMA,
                "plan": str(path),
                **values_of(played.timeline, "iteration_s", "bubble_fraction"),
                **throughput_summary(played.throughput),
                "stages": stage_summaries(played),
                "binds": binding_summary(played.plan, what_binds(played.costs, played.timeline)),
                "what_if": [what_if_summary(outcome) for outcome in outcomes],
                "complete": is_complete,
                "times_rest_on": str(time_basis(plan_file.problem).basis),
                "notes": notes(),
                "provenance": tree_of(provenance),
            }
            print_json(answer)
        else:
            _print_for_people(plan_file, played, outcomes)
            if not is_complete:
                click.echo("\ninterrupted: the remaining rows are missing")
    click.get_current_context().exit(0 if is_complete else INTERRUPTED)


def _print_for_people(plan_file: PlanFile, played: Played, outcomes: Sequence[WhatIfOutcome]) -> None:
    iteration_s = played.timeline.iteration_s
    click.echo(headline(played))
    proven = quality(certified_result(plan_file, iteration_s))
    click.echo(f"{format_seconds(iteration_s)} per iteration, {proven}{resting_on(time_basis(plan_file.problem))}\n")
    print_table(binding_table(played.plan, what_binds(played.costs, played.timeline)))
    print_memory(played)
    click.echo()
    print_table(what_if_table(outcomes))
