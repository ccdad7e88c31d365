"""`plan history`: show how accurate predictions were, run by run."""

from pathlib import Path

import click

from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.run import print_lines, read_history, spread_tree
from stagecut.planner.core.run_record import accuracy
from stagecut.planner.io.files.run_history import DEFAULT_HISTORY
from stagecut.planner.report.run_tables import accuracy_lines, history_table
from stagecut.planner.report.summary import SCHEMA, values_of
from stagecut.planner.report.text_table import print_table

KEYS = (
    *("started", "plan_hash", "model", "cluster", "device", "mode"),
    *("predicted_s", "measured_s", "error", "contaminated"),
)


@click.command("history", epilog=example("plan history", "plan history runs.jsonl --json"))
@click.argument("path", metavar="[FILE]", type=InputFile(), default=DEFAULT_HISTORY)
@general_options
def command(path: Path, *, as_json: bool) -> None:
    """Show how accurate predictions were, run by run.

    Reads the file to which every `plan run` appends its record, runs.jsonl in the current folder by
    default. Lines that cannot be read are reported and skipped.
    """
    history = read_history(path)
    spreads = accuracy(history.runs)
    if as_json:
        answer = {
            "schema": SCHEMA,
            "history": str(path),
            "runs": [values_of(run, *KEYS) for run in history.runs],
            "accuracy": [{"mode": str(mode), **(spread_tree(spread) or {})} for mode, spread in spreads],
            "skipped": list(history.skipped),
        }
        print_json(answer)
        return
    print_table(history_table(history.runs))
    click.echo("" if history.runs else "no runs yet")
    print_lines(accuracy_lines(spreads))
