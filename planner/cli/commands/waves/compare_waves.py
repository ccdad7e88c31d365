"""`plan compare --synchronisation wsp`: allocations of the same devices to virtual workers."""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace

import click

from stagecut.planner.cli.commands.waves.solve_waves import plan_workers, wave_provenance
from stagecut.planner.cli.options.waves import refuse_without_effect
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.lazy_group import seconds_since_start
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import DIFFERS, compared_exit_code, print_fault
from stagecut.planner.cli.views.wave_plan import rate_words, wave_row
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.waves import Allocation
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.verdict import resting_on
from stagecut.planner.report.waves.wave_comparison import share_of_best, wave_comparison_table
from stagecut.planner.solvers.search.options import SolveOptions

Outcomes = dict[str, WaveResult | str]
"""Results by allocation, or why there cannot be one; in the order in which they ran."""
FIXED = ("solvers", "rows", "allocation")
"""Parameters of the command that say nothing where all allocations are compared."""


def compare_allocations(problem: Problem, options: SolveOptions, *, quiet: bool, as_json: bool) -> None:
    """Plan virtual workers by every allocation, print the answer, and end the command."""
    refuse_without_effect(FIXED)
    context = click.get_current_context()
    spent_s = seconds_since_start(context) / len(Allocation)
    with stop_requests() as cancelled:
        outcomes = run_cancellable(
            lambda: _run_all(problem, options, cancelled, spent_s=spent_s, quiet=quiet), cancelled
        )
        results = [outcome for outcome in outcomes.values() if isinstance(outcome, WaveResult)]
        conflict = contradiction(outcomes)
        for result in results:
            print_fault(result, of=result.solver)
        if as_json:
            provenance = wave_provenance(problem, options, ",".join(outcomes))
            rows = [_row(name, outcome, _best(results)) for name, outcome in outcomes.items()]
            answer = {"results": rows, "contradiction": conflict or None, "provenance": tree_of(provenance)}
            rests = {"times_rest_on": str(time_basis(problem).basis), "notes": notes()}
            print_json({"schema": SCHEMA, **answer, **rests})
        else:
            _print_for_people(outcomes, results, conflict)
            click.echo(resting_on(time_basis(problem)).removeprefix("; "))
    context.exit(DIFFERS if conflict else compared_exit_code(results))


def contradiction(outcomes: Outcomes) -> str:
    """Whether an allocation beats the bound of the search over all of them; empty if none does."""
    whole = outcomes.get(Allocation.OPTIMAL)
    results = [outcome for outcome in outcomes.values() if isinstance(outcome, WaveResult)]
    best = max(results, key=lambda result: result.samples_per_s or 0.0, default=None)
    if not isinstance(whole, WaveResult) or best is None or best.samples_per_s is None:
        return ""
    if whole.status is Status.INFEASIBLE:
        return f"{whole.solver} claims that no plan fits, but {best.solver} has one"
    bound = whole.bound_samples_per_s
    if bound is None or best.samples_per_s <= bound * (1 + EQUAL_TIMES):
        return ""
    claim = f"{whole.solver} claims that no plan makes more than {bound!r} samples/s"
    return f"{claim}, but {best.solver} has one of {best.samples_per_s!r}"


def _run_all(
    problem: Problem, options: SolveOptions, cancelled: threading.Event, *, spent_s: float, quiet: bool
) -> Outcomes:
    """Plan by one allocation after another, up to an interruption."""
    waves, outcomes = problem.job.waves, Outcomes()
    assert waves is not None
    for allocation in Allocation:
        if cancelled.is_set():
            break
        own = replace(problem, job=replace(problem.job, waves=replace(waves, allocation=allocation)))
        try:
            with progress(sys.stderr, quiet=quiet, solver=allocation, words=rate_words) as observer:
                outcomes[allocation] = plan_workers(own, options, observer, cancelled=cancelled, spent_s=spent_s)
        except BadInputError as fault:
            outcomes[allocation] = str(fault)
    return outcomes


def _best(results: Sequence[WaveResult]) -> float:
    return max((result.samples_per_s or 0.0 for result in results), default=0.0)


def _print_for_people(outcomes: Outcomes, results: Sequence[WaveResult], conflict: str) -> None:
    print_table(wave_comparison_table(results))
    for name, outcome in outcomes.items():
        if isinstance(outcome, str):
            click.echo(f"{name}: not applicable: {outcome}")
        elif outcome.reason:
            click.echo(f"{name}: {outcome.reason}")
    if conflict:
        click.echo(f"Error: {conflict}", err=True)


def _row(name: str, outcome: WaveResult | str, best: float) -> dict[str, object]:
    if isinstance(outcome, str):
        nothing = WaveResult(status=Status.NO_PLAN, solver=f"waves-{name}", seconds=0.0)
        return {**_row(name, nothing, best), "status": "unsupported", "seconds": None, "message": outcome}
    return {**wave_row(outcome), "of_best": share_of_best(outcome, best), "message": ""}
