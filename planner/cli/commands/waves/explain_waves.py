"""`plan explain` for virtual workers: what they wait for, and what more hardware would bring."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from stagecut.planner.analysis.wave_prediction import PlayedWaves, play_waves
from stagecut.planner.analysis.wave_recheck import certified_waves
from stagecut.planner.analysis.wave_what_if import WaveWhatIf, wave_what_ifs
from stagecut.planner.cli.commands.waves.solve_waves import plan_workers, wave_provenance
from stagecut.planner.cli.options.time_notes import note_times
from stagecut.planner.cli.options.waves import refuse_without_effect
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import print_fault
from stagecut.planner.cli.views.wave_plan import rate_words, wave_headline, wave_row, wave_summary
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.report.progress import progress
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.waves.wave_comparison import wave_what_if_table
from stagecut.planner.report.waves.wave_tables import wait_table
from stagecut.planner.report.waves.wave_verdict import wave_verdict
from stagecut.planner.solvers.diagnosis.extra_units import Unit, what_ifs
from stagecut.planner.solvers.search.options import SolveOptions


def explain_waves(
    path: Path, plan_file: WavePlanFile, units: Sequence[Unit], options: SolveOptions, *, quiet: bool, as_json: bool
) -> None:
    """Simulate the workers, search with one more of each unit, print the answer, and end the command."""
    refuse_without_effect(("solver", "rows"))
    note_times(plan_file.problem)
    played = play_waves(plan_file.problem, plan_file.plan)
    with stop_requests() as cancelled:

        def solve(name: str, problem: Problem) -> WaveResult:
            with progress(sys.stderr, quiet=quiet, solver=name, words=rate_words) as observer:
                return plan_workers(problem, options, observer, cancelled=cancelled)

        samples_per_s = played.timeline.samples_per_s
        rows = run_cancellable(lambda: [*wave_what_ifs(plan_file, samples_per_s, units, solve)], cancelled)
        is_complete = len(rows) == 1 + len([*what_ifs(plan_file.problem, tuple(units))])
        for row in rows:
            if row.result is not None:
                print_fault(row.result, of=row.what)
        if as_json:
            provenance = wave_provenance(plan_file.problem, options, plan_file.certificate.solver)
            more = {
                "plan": str(path),
                "complete": is_complete,
                **_rests(plan_file.problem),
                "provenance": tree_of(provenance),
            }
            print_json({**wave_summary(played), **more, "what_if": [_tree(row) for row in rows]})
        else:
            _print_for_people(plan_file, played, rows)
            if not is_complete:
                click.echo("\ninterrupted: the remaining rows are missing")
    click.get_current_context().exit(0 if is_complete else INTERRUPTED)


def _rests(problem: Problem) -> dict[str, object]:
    return {"times_rest_on": str(time_basis(problem).basis), "notes": notes()}


def _print_for_people(plan_file: WavePlanFile, played: PlayedWaves, rows: Sequence[WaveWhatIf]) -> None:
    basis = time_basis(plan_file.problem)
    click.echo(wave_headline(played))
    click.echo(f"{wave_verdict(certified_waves(plan_file, played.timeline.samples_per_s), basis=basis)}\n")
    print_table(wait_table(played.timeline))
    click.echo()
    print_table(wave_what_if_table(rows))


def _tree(row: WaveWhatIf) -> dict[str, object]:
    nothing = dict.fromkeys(("samples_per_s", "bound_samples_per_s", "gap", "status"))
    found = nothing if row.result is None else wave_row(row.result)
    return {
        "what": row.what,
        "unit": row.unit,
        **found,
        "gained_share": row.gained,
        "gained_share_at_most": row.gained_at_most,
    }
