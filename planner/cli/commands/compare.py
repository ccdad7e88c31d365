"""`plan compare`: run several solvers on one problem."""

import sys
import threading
from collections.abc import Sequence

import click

from stagecut.planner.analysis.stated_options import option_values
from stagecut.planner.cli.commands.waves.compare_waves import compare_allocations
from stagecut.planner.cli.options.problem import ProblemChoices
from stagecut.planner.cli.options.search import SearchOptions
from stagecut.planner.cli.options.without_effect import note_unused_by
from stagecut.planner.cli.parameters.groups import example, general_options, option_group, quiet_option
from stagecut.planner.cli.parameters.types import words_of
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.sections import SectionCommand
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import DIFFERS, compared_exit_code, print_fault, print_shortages
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.report.labels import own_objective_label
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, comparison_row, own_objective_tree
from stagecut.planner.report.tables import comparison_table
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.verdict import resting_on, time_ratio
from stagecut.planner.solvers.registry import SOLVERS, run
from stagecut.planner.solvers.search.options import SolveOptions

Outcomes = dict[str, Result | str]
"""Results by solver, or why a solver cannot express the problem; in the order in which they ran."""


@click.command(
    "compare",
    cls=SectionCommand,
    epilog=example(
        "plan compare --model bert-large --cluster commodity-32 --global-batch 128 --solvers milp,greedy,even"
    ),
)
@option_group(ProblemChoices, argument="choices")
@click.option(
    "--solvers",
    type=words_of(SOLVERS),
    default="milp,dp,greedy,even",
    show_default=True,
    metavar="LIST|all",
    help=f"Solvers to run: {', '.join(SOLVERS)}.",
)
@option_group(SearchOptions, argument="options")
@quiet_option
@general_options
def command(
    choices: ProblemChoices, solvers: tuple[str, ...], options: SolveOptions, *, quiet: bool, as_json: bool
) -> None:
    """Run several solvers on one problem, one after another.

    Exits with code 0 if one of them found a plan, and with code 6 if they contradict each other: if one
    claims that no plan is faster than some time, and another has such a plan. With --synchronisation wsp
    the allocations of devices to virtual workers are compared: np, ed, hd and optimal.
    """
    problem = choices.problem()
    if problem.job.waves is not None:
        compare_allocations(problem, options, quiet=quiet, as_json=as_json)
        return
    note_unused_by(solvers)
    # Reading the inputs counts too, in equal parts, so that the command as a whole keeps to the limits.
    spent_s = seconds_since_start(click.get_current_context()) / len(solvers)
    with stop_requests() as cancelled:
        outcomes = run_cancellable(
            lambda: _run_all(problem, solvers, options, cancelled, spent_s=spent_s, quiet=quiet), cancelled
        )
        results = [outcome for outcome in outcomes.values() if isinstance(outcome, Result)]
        conflict = contradiction(results)
        for result in results:
            print_fault(result, of=result.solver)
        if as_json:
            _print_as_json(problem, outcomes, results, options, conflict)
        else:
            _print_for_people(problem, outcomes, results, conflict)
    click.get_current_context().exit(DIFFERS if conflict else compared_exit_code(results))


def _run_all(
    problem: Problem,
    solvers: Sequence[str],
    options: SolveOptions,
    cancelled: threading.Event,
    *,
    spent_s: float,
    quiet: bool,
) -> Outcomes:
    """Run the solvers one after another, up to an interruption."""
    outcomes: Outcomes = {}
    for name in solvers:
        if cancelled.is_set():
            break
        try:
            with progress(sys.stderr, quiet=quiet, solver=name) as observer:
                outcomes[name] = run(problem, name, options, observer=observer, cancelled=cancelled, spent_s=spent_s)
        except UnsupportedError as fault:
            outcomes[name] = str(fault)
    return outcomes


def contradiction(results: Sequence[Result]) -> str:
    """How two results contradict each other; empty if none do."""
    planned = [(result.objective_s, result.solver) for result in results if result.objective_s is not None]
    if not planned:
        return ""
    best_s, best = min(planned)
    empty = next((result for result in results if result.status is Status.INFEASIBLE), None)
    if empty is not None:
        return f"{empty.solver} claims that no plan fits, but {best} has one"
    bound = max(results, key=lambda result: result.bound_s or 0.0)
    bound_s = bound.bound_s or 0.0
    if bound_s <= best_s * (1 + EQUAL_TIMES):
        return ""
    return f"{bound.solver} claims that no plan takes less than {bound_s!r} s, but {best} has one of {best_s!r} s"


def _print_for_people(problem: Problem, outcomes: Outcomes, results: Sequence[Result], conflict: str) -> None:
    print_table(comparison_table(results))
    for result in results:
        if result.own_objective is not None:
            click.echo(f"{result.solver}: own objective {own_objective_label(result.own_objective)}")
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            click.echo(f"{name}: not applicable: {outcome}")
    if any(result.plan is not None for result in results):
        click.echo(resting_on(time_basis(problem)).removeprefix("; "))
    else:
        for result in results:
            print_shortages(problem, result)
    if conflict:
        click.echo(f"Error: {conflict}", err=True)


def _print_as_json(
    problem: Problem, outcomes: Outcomes, results: Sequence[Result], options: SolveOptions, conflict: str
) -> None:
    provenance = provenance_of(problem, option_values(options, solver=",".join(outcomes)), seed=options.seed)
    times_s = [result.objective_s for result in results if result.objective_s is not None]
    print_json(
        {
            "schema": SCHEMA,
            "results": [_row(*each, min(times_s, default=None)) for each in outcomes.items()],
            "contradiction": conflict or None,
            "times_rest_on": str(time_basis(problem).basis),
            "notes": notes(),
            "provenance": tree_of(provenance),
        }
    )


def _row(name: str, outcome: Result | str, best_s: float | None) -> dict[str, object]:
    if isinstance(outcome, str):
        nothing = Result(status=Status.NO_PLAN, solver=name, seconds=0.0)
        return {**_row(name, nothing, None), "status": "unsupported", "seconds": None, "message": outcome}
    slower = None if outcome.objective_s is None or best_s is None else time_ratio(outcome.objective_s, best_s)
    return {
        **comparison_row(outcome),
        "row_bound_s": outcome.row_bound_s,
        "own_objective": own_objective_tree(outcome),
        "times_best": slower,
        "message": "",
    }
