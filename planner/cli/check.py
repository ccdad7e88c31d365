"""`plan check`: derive every number of a plan file again."""

from pathlib import Path

import click

from planner.cli.answers import DIFFERS
from planner.cli.example import example
from planner.cli.option_groups import general_options
from planner.cli.outputs import print_json
from planner.cli.recheck import Recheck, Value, recheck
from planner.io.plan_file import read_plan_file
from planner.report.summary import SCHEMA


@click.command("check", epilog=example("plan check plan.json"))
@click.argument("path", metavar="PLAN", type=click.Path(path_type=Path))
@general_options
def command(path: Path, *, as_json: bool) -> None:
    """Derive every number of a plan file again.

    From the inputs in the file: their hashes, the times and memory of every stage, the simulated
    iteration time, the gap; and whether the plan is one of the search space. Exit code 6 and a
    list of what differs unless all agree. The bound itself is the word of the solver.
    """
    outcome = recheck(read_plan_file(path))
    if as_json:
        print_json(_summary(path, outcome))
    else:
        _print(path, outcome)
    click.get_current_context().exit(0 if outcome.agrees else DIFFERS)


def _summary(path: Path, outcome: Recheck) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "plan": str(path),
        "agrees": outcome.agrees,
        "num_checks": len(outcome.checks),
        "differences": [
            {"where": check.where, "stated": check.stated, "derived": check.derived} for check in outcome.differences
        ],
        "faults": list(outcome.faults),
    }


def _print(path: Path, outcome: Recheck) -> None:
    for check in outcome.differences:
        click.echo(
            f"{path}: {check.where}: the file says {_shown(check.stated)}, its inputs give {_shown(check.derived)}"
        )
    for fault in outcome.faults:
        click.echo(f"{path}: {fault}")
    if outcome.agrees:
        click.echo(f"{path}: all {len(outcome.checks)} numbers agree, and the plan is legal")
    else:
        found = f"{len(outcome.differences)} of {len(outcome.checks)} numbers differ"
        click.echo(f"{path}: {found}, {len(outcome.faults)} rules are broken")


def _shown(value: Value) -> str:
    """A value as the file writes it."""
    return "null" if value is None else str(value)
