"""`plan history`: show how good predictions were, run by run."""

import sys
from pathlib import Path

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import print_json
from stagecut.planner.cli.views.run import print_lines, spread_tree
from stagecut.planner.core.run_record import RunRecord, accuracy
from stagecut.planner.core.visible import visible
from stagecut.planner.io.files.run_history import DEFAULT_HISTORY, History, read_runs
from stagecut.planner.report.run_tables import accuracy_lines, history_table
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table


@click.command("history", epilog=example("plan history", "plan history runs.jsonl --json"))
@click.argument("path", metavar="[FILE]", type=InputFile(), default=DEFAULT_HISTORY)
@general_options
def command(path: Path, *, as_json: bool) -> None:
    """Show how good predictions were, run by run.

    Reads the file to which every `plan run` appends, runs.jsonl in the current folder by default.
    A line that cannot be read is reported and passed over.
    """
    history = read_runs(path)
    for fault in history.skipped:
        click.echo(f"Warning: {visible(fault)}", err=True)
    if as_json:
        print_json(_summary(path, history))
        return
    print_table(history_table(history.runs), sys.stdout)
    click.echo("" if history.runs else "no runs yet")
    print_lines(accuracy_lines(accuracy(history.runs)))


def _summary(path: Path, history: History) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "history": str(path),
        "runs": [_row(run) for run in history.runs],
        "accuracy": [{"mode": str(mode), **spread_tree(spread)} for mode, spread in accuracy(history.runs)],
        "skipped": list(history.skipped),
    }


def _row(run: RunRecord) -> dict[str, object]:
    return {
        "started": run.started,
        "plan_hash": run.plan_hash,
        "model": run.model,
        "cluster": run.cluster,
        "device": run.device,
        "mode": str(run.mode),
        "predicted_s": run.predicted_s,
        "measured_s": run.measured_s,
        "error": run.error,
        "contaminated": run.contaminated,
    }
