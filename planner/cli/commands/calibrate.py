"""`plan calibrate`: correct the times of a profile from recorded runs."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from stagecut.planner.cli.parameters.files import InputFile, OutputFile
from stagecut.planner.cli.parameters.groups import example, general_options
from stagecut.planner.cli.process.writing import announce, print_json, write_file
from stagecut.planner.cli.views.run import print_lines, read_history, spread_tree
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.run_record import RunMode, RunRecord
from stagecut.planner.cost.calibration import calibrate
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.documents.write import check_writable, readable_text
from stagecut.planner.io.files.profile import profile_of, read_profile, to_tree
from stagecut.planner.report.run_tables import calibration_lines, factor_table
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table

REASONS = {
    "other_profile": "made with other profiles",
    "dilated": "in dilated mode, which says nothing about devices",
    "contaminated": "contaminated (--contaminated includes them)",
}
"""Why runs are skipped, by the key of the JSON answer."""


@click.command("calibrate", epilog=example("plan calibrate runs.jsonl --profile profile.json -o calibrated.json"))
@click.argument("path", metavar="RUNS", type=InputFile())
@click.option(
    "--profile",
    "profile_path",
    type=InputFile(),
    metavar="FILE",
    required=True,
    help="Profile that the plans of these runs were made with.",
)
@click.option("--contaminated", is_flag=True, help="Include runs in which no step was clean.")
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Write the corrected profile to this file.")
@click.option("--force", is_flag=True, help="Overwrite existing files.")
@general_options
def command(
    path: Path, *, profile_path: Path, output: Path | None, contaminated: bool, force: bool, as_json: bool
) -> None:
    """Correct the times of a profile from recorded runs.

    Fits one factor for the forwards and one for the backwards of each kind of layer on each device
    type to the stage times of real runs, and reports the error that remains.
    """
    if output is not None:
        check_writable(output, force=force)
    profile, history = read_profile(profile_path), read_history(path)
    used, skipped = choose(history.runs, profile_hash=sha256_of(to_tree(profile)), contaminated=contaminated)
    reasons = "; ".join(f"{count} {REASONS[key]}" for key, count in skipped.items() if count)
    if reasons:
        click.echo(f"skipped runs: {reasons}", err=True)
    if not used:
        why = f"skipped: {reasons}" if reasons else "the file is empty"
        raise BadInputError(f"{path}: contains no run to calibrate {profile_path} with; {why}")
    calibration = calibrate(profile, used)
    if output is not None:
        write_file(output, readable_text(to_tree(calibration.profile), profile_of, path=output), force=force)
        announce([output])
    if as_json:
        answer = {
            "schema": SCHEMA,
            "num_runs": calibration.num_runs,
            "passed_over": skipped,
            "factors": [asdict(factor) for factor in calibration.factors],
            "before": spread_tree(calibration.before),
            "after": spread_tree(calibration.after),
        }
        print_json(answer)
    else:
        print_table(factor_table(calibration))
        click.echo()
        print_lines(calibration_lines(calibration))


def choose(
    runs: Sequence[RunRecord], *, profile_hash: str, contaminated: bool
) -> tuple[tuple[RunRecord, ...], dict[str, int]]:
    """Real runs of plans made with the profile, clean unless asked otherwise; how many others there are, by reason."""
    own = [run for run in runs if run.profile_hash == profile_hash]
    real = [run for run in own if run.mode is RunMode.REAL]
    used = tuple(run for run in real if contaminated or not run.contaminated)
    counts = (len(runs) - len(own), len(own) - len(real), len(real) - len(used))
    return used, dict(zip(REASONS, counts, strict=True))
