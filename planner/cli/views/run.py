"""Recorded runs as people and programs read them."""

from pathlib import Path

import click

from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.run_record import ErrorSpread, RunMode, RunRecord
from stagecut.planner.io.files.run_history import History, read_runs
from stagecut.planner.report.run_tables import Lines, behind_label, contamination_label, run_lines, run_stage_tables
from stagecut.planner.report.text_table import print_table

DILATED = (
    "dilated: actions and messages were held to the planned times; this checks schedule, order and runtime, not the "
    "speed of the devices; memory is only measured in real mode"
)


def print_run(run: RunRecord) -> None:
    """Measured beside predicted, with a note where the measurement tells nothing."""
    click.echo(f"{run.model} on {run.cluster}, {run.mode} on {run.device}\n")
    print_table(*run_stage_tables(run))
    click.echo()
    print_lines(run_lines(run))
    for note in (DILATED if run.mode is RunMode.DILATED else "", behind_label(run), contamination_label(run)):
        if note:
            click.echo(note)


def print_lines(lines: Lines) -> None:
    """Names and values in two columns."""
    width = max((len(name) for name, _ in lines), default=0)
    for name, value in lines:
        click.echo(f"{name:<{width}}  {value}")


def read_history(path: Path) -> History:
    """The recorded runs of a file, with a warning for each line that cannot be read."""
    history = read_runs(path)
    for fault in history.skipped:
        click.echo(f"Warning: {visible(fault)}", err=True)
    return history


def spread_tree(spread: ErrorSpread | None) -> dict[str, object] | None:
    """Errors as JSON."""
    if spread is None:
        return None
    return {"count": spread.count, "median_error": spread.median, "worst_error": spread.worst}
