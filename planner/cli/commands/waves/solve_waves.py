"""`plan solve --synchronisation wsp`: plan virtual workers."""

import math
import sys
import threading
from pathlib import Path

import click

from stagecut.planner.analysis.stated_options import option_values
from stagecut.planner.analysis.wave_prediction import PlayedWaves, play_waves, wave_plan_file_of
from stagecut.planner.cli.options.solve import SolveOutputs, TimeBudget
from stagecut.planner.cli.options.waves import refuse_without_effect
from stagecut.planner.cli.parameters.groups import is_verbose
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.writing import announce, print_json
from stagecut.planner.cli.views.answers import EXIT_CODES, print_fault
from stagecut.planner.cli.views.wave_plan import (
    print_wave_numbers,
    print_wave_plan,
    print_wave_problem,
    rate_words,
    wave_problem_summary,
    wave_row,
    wave_summary,
)
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.cost.time_basis import TimeBasis, time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.io.files.wave_plan_file import plan_tree
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, values_of
from stagecut.planner.report.waves.wave_verdict import wave_verdict
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.workers.wave_search import WaveObserver

SYNCHRONOUS = ("solver", "rows", "convergence")
"""Parameters of the command that only other searches use."""


def solve_through_waves(
    problem: Problem, options: SolveOptions, outputs: SolveOutputs, *, dry_run: bool, quiet: bool, as_json: bool
) -> None:
    """Plan virtual workers, write and print the answer, and end the command."""
    refuse_without_effect(SYNCHRONOUS)
    outputs.check()
    if dry_run:
        _show_problem(problem, as_json=as_json)
        return
    context = click.get_current_context()
    budget = TimeBudget(context, options.time_limit_s or math.inf, outputs, compares=False)
    with stop_requests() as cancelled:
        with progress(sys.stderr, quiet=quiet, words=rate_words) as observer:
            spent_s = budget.spent_of_waves_s
            result = run_cancellable(
                lambda: plan_workers(problem, options, observer, cancelled=cancelled, spent_s=spent_s), cancelled
            )
        played = None if result.plan is None else play_waves(problem, result.plan)
        provenance = wave_provenance(problem, options, result.solver)
        print_fault(result)
        written: tuple[Path, ...] = ()
        try:
            if played is not None:
                written = outputs.write_waves(played, result, wave_plan_file_of(played, result, provenance))
        finally:
            if as_json:
                print_json({**_answer(problem, result, played), "provenance": tree_of(provenance)})
            else:
                _print_for_people(result, played, time_basis(problem))
    if not quiet:
        announce(written)
    context.exit(EXIT_CODES[result.status])


def plan_workers(
    problem: Problem, options: SolveOptions, observer: WaveObserver, *, cancelled: threading.Event, spent_s: float = 0.0
) -> WaveResult:
    """See :func:`stagecut.planner.workers.solving.solve_waves`, which is imported only here, since it loads HiGHS."""
    from stagecut.planner.workers.solving import solve_waves

    return solve_waves(problem, options, observer=observer, cancelled=cancelled, spent_s=spent_s)


def wave_provenance(problem: Problem, options: SolveOptions, solver: str) -> Provenance:
    """Where a plan of virtual workers comes from."""
    values = option_values(options, solver=solver)
    del values["rows"]  # they bound iteration times
    return provenance_of(problem, values, seed=options.seed)


def _show_problem(problem: Problem, *, as_json: bool) -> None:
    if as_json:
        print_json({"schema": SCHEMA, "dry_run": True, "problem": wave_problem_summary(problem), "notes": notes()})
    else:
        print_wave_problem(problem)


def _print_for_people(result: WaveResult, played: PlayedWaves | None, basis: TimeBasis) -> None:
    if played is not None:
        print_wave_plan(played)
        print_wave_numbers(played, result)
        click.echo()
    click.echo(wave_verdict(result, basis=basis))
    if is_verbose():
        for what, how_many in result.counts:
            click.echo(f"{what}: {how_many}", err=True)


def _answer(problem: Problem, result: WaveResult, played: PlayedWaves | None) -> dict[str, object]:
    basis = time_basis(problem)
    return {
        **({"schema": SCHEMA} if played is None else wave_summary(played)),
        **wave_row(result),
        "counts": dict(result.counts),
        "step_seconds": dict(result.step_seconds),
        "history": [values_of(point, "seconds", "samples_per_s", "bound_samples_per_s") for point in result.history],
        "plan": None if played is None else plan_tree(played.plan, problem),
        "verdict": wave_verdict(result, basis=basis),
        "times_rest_on": str(basis.basis),
        "notes": notes(),
        "problem": wave_problem_summary(problem),
    }
