"""A run as people read it: its stages, then the iteration as a whole."""

import sys

import click

from stagecut.planner.core.run_record import ErrorSpread, RunMode, RunRecord
from stagecut.planner.report.run_tables import Lines, behind_label, contamination_label, run_lines, run_stage_tables
from stagecut.planner.report.text_table import print_table

NOTES = {
    RunMode.DILATED: "dilated: actions and messages were held to the times of the plan; "
    "this checks schedule, order and runtime, not how fast the devices are; memory is measured in real mode only",
}


def print_run(run: RunRecord) -> None:
    """Measured beside predicted; says plainly where the measurement tells nothing."""
    click.echo(f"{run.model} on {run.cluster}, {run.mode} on {run.device}\n")
    table, *narrower = run_stage_tables(run)
    print_table(table, sys.stdout, narrower=narrower)
    click.echo()
    print_lines(run_lines(run))
    for note in (NOTES.get(run.mode, ""), behind_label(run), contamination_label(run)):
        if note:
            click.echo(note)


def print_lines(lines: Lines) -> None:
    """Names and values in two columns."""
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}")


def spread_tree(spread: ErrorSpread) -> dict[str, object]:
    """Errors as JSON."""
    return {"count": spread.count, "median_error": spread.median, "worst_error": spread.worst}
