"""`plan compare`: run several solvers on one problem."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import print_json
from stagecut.planner.cli.options.problem import ProblemChoices, problem_options
from stagecut.planner.cli.options.search import option_values, search_options
from stagecut.planner.cli.options.types import words_of
from stagecut.planner.cli.prediction import provenance_tree
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.cli.views.answers import DIFFERS, EXIT_CODES, print_shortages, tell_fault
from stagecut.planner.core.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result, Status
from stagecut.planner.core.tolerances import EQUAL_TIMES
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.report.labels import own_objective_label
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import comparison_row, comparison_summary, own_objective_tree
from stagecut.planner.report.tables import comparison_table
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.verdict import time_ratio
from stagecut.planner.solvers.registry import SOLVERS, run
from stagecut.planner.solvers.search.options import SolveOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """A solver that cannot express the problem, and why."""

    solver: str
    reason: str


Outcome = Result | Refusal


@click.command(
    "compare",
    epilog=example(
        "plan compare --model bert-large --cluster commodity-32 --global-batch 128 --solvers milp,greedy,even"
    ),
)
@problem_options
@click.option(
    "--solvers",
    type=words_of(tuple(SOLVERS)),
    default="milp,dp,greedy,even",
    show_default=True,
    metavar="LIST|all",
    help=f"Any of {', '.join(SOLVERS)}.",
)
@search_options()
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
def command(
    choices: ProblemChoices, solvers: tuple[str, ...], options: SolveOptions, *, quiet: bool, as_json: bool
) -> None:
    """Run several solvers on one problem, one after another.

    Exit code 0 if one of them found a plan; 6 if they contradict each other: one proves that no
    plan is faster than some time, and another has such a plan.
    """
    problem = choices.problem()
    # Every solver has the same time, and all together as long as the limits say, reading included.
    spent_s = seconds_since_start(click.get_current_context()) / len(solvers)
    with stop_requests() as cancelled:
        outcomes = run_cancellable(
            lambda: _run_all(problem, solvers, options, cancelled, spent_s=spent_s, quiet=quiet), cancelled
        )
        results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
        conflict = contradiction(results)
        for result in results:
            tell_fault(result, of=result.solver)
        if as_json:
            _print_as_json(problem, outcomes, options, conflict)
        else:
            _print_for_people(problem, outcomes, conflict)
    click.get_current_context().exit(DIFFERS if conflict else _exit_code(results))


def _run_all(
    problem: Problem,
    solvers: Sequence[str],
    options: SolveOptions,
    cancelled: threading.Event,
    *,
    spent_s: float,
    quiet: bool,
) -> list[Outcome]:
    """Outcomes in the order of the names, as far as there was no Ctrl-C."""
    outcomes: list[Outcome] = []
    for name in solvers:
        if cancelled.is_set():
            break
        try:
            with progress(sys.stderr, quiet=quiet, solver=name) as observer:
                outcomes.append(run(problem, name, options, observer=observer, cancelled=cancelled, spent_s=spent_s))
        except UnsupportedError as fault:
            outcomes.append(Refusal(solver=name, reason=str(fault)))
    return outcomes


def contradiction(results: Sequence[Result]) -> str:
    """How two results exclude each other; empty where none do."""
    bound = max(results, key=lambda result: result.bound_s or 0.0, default=None)
    planned = [result for result in results if result.objective_s is not None]
    if bound is None or not planned:
        return ""
    best = min(planned, key=lambda result: result.objective_s or 0.0)
    empty = next((result for result in results if result.status is Status.INFEASIBLE), None)
    if empty is not None:
        return f"{empty.solver} claims that no plan fits, {best.solver} has one"
    bound_s, best_s = bound.bound_s or 0.0, best.objective_s or 0.0
    if bound_s <= best_s * (1 + EQUAL_TIMES):
        return ""
    return f"{bound.solver} claims that no plan takes less than {bound_s!r} s, {best.solver} has one of {best_s!r} s"


def _exit_code(results: Sequence[Result]) -> int:
    """0 with a plan; without one, whether that is known to be so."""
    statuses = {result.status for result in results}
    if Status.INTERRUPTED in statuses:
        return EXIT_CODES[Status.INTERRUPTED]
    if any(result.plan is not None for result in results):
        return 0
    return EXIT_CODES[Status.INFEASIBLE if Status.INFEASIBLE in statuses else Status.NO_PLAN]


def _print_for_people(problem: Problem, outcomes: Sequence[Outcome], conflict: str) -> None:
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    refusals = [outcome for outcome in outcomes if isinstance(outcome, Refusal)]
    print_table(comparison_table(results), sys.stdout)
    for result in results:
        if result.own_objective is not None:
            click.echo(f"{result.solver}: own objective {own_objective_label(result.own_objective)}")
    for refusal in refusals:
        click.echo(f"{refusal.solver}: cannot be used here: {refusal.reason}")
    if not any(result.plan is not None for result in results):
        for result in results:
            print_shortages(problem, result)
    if conflict:
        click.echo(f"Error: {conflict}", err=True)


def _print_as_json(problem: Problem, outcomes: Sequence[Outcome], options: SolveOptions, conflict: str) -> None:
    results = [outcome for outcome in outcomes if isinstance(outcome, Result)]
    names = ",".join(outcome.solver for outcome in outcomes)
    provenance = provenance_of(problem, option_values(options, solver=names), seed=options.seed)
    best_s = min((result.objective_s for result in results if result.objective_s is not None), default=None)
    print_json(
        {
            **comparison_summary(results, provenance=provenance_tree(provenance)),
            "results": [_row(outcome, best_s) for outcome in outcomes],
            "contradiction": conflict or None,
        }
    )


def _row(outcome: Outcome, best_s: float | None) -> dict[str, object]:
    if isinstance(outcome, Refusal):
        numbers = ("objective_s", "bound_s", "gap", "seconds", "row_bound_s", "own_objective", "times_best")
        unknown = dict.fromkeys(("stopped_by", "fault", *numbers))
        return {"solver": outcome.solver, "status": "unsupported", **unknown, "message": outcome.reason}
    slower = None if outcome.objective_s is None or best_s is None else time_ratio(outcome.objective_s, best_s)
    return {
        **comparison_row(outcome),
        "row_bound_s": outcome.row_bound_s,
        "own_objective": own_objective_tree(outcome),
        "times_best": slower,
        "message": "",
    }
