"""`plan calibrate`: correct the times of a profile from recorded runs."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile, OutputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import announce, print_json, write_file
from stagecut.planner.cli.views.run import print_lines, spread_tree
from stagecut.planner.core.errors import BadInputError
from stagecut.planner.core.run_record import ErrorSpread, RunMode, RunRecord
from stagecut.planner.core.visible import visible
from stagecut.planner.cost.calibration import Calibration, calibrate
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.documents.readable import readable_text
from stagecut.planner.io.documents.write import check_writable
from stagecut.planner.io.files.profile import profile_of, read_profile, to_tree
from stagecut.planner.io.files.run_history import read_runs
from stagecut.planner.report.calibration_table import calibration_lines, factor_table
from stagecut.planner.report.summary import SCHEMA
from stagecut.planner.report.text_table import print_table


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which runs of a history are calibrated with, and how many are passed over for what."""

    used: tuple[RunRecord, ...]
    other_profile: int
    dilated: int
    contaminated: int

    def __str__(self) -> str:
        counts = (
            (self.other_profile, "of other profiles"),
            (self.dilated, "in dilated mode, which says nothing of devices"),
            (self.contaminated, "contaminated (--contaminated takes them all the same)"),
        )
        return "; ".join(f"{count} {what}" for count, what in counts if count)


@click.command("calibrate", epilog=example("plan calibrate runs.jsonl --profile profile.json -o calibrated.json"))
@click.argument("path", metavar="RUNS", type=InputFile())
@click.option(
    "--profile",
    "profile_path",
    type=InputFile(),
    metavar="FILE",
    required=True,
    help="The profile that the plans were made with.",
)
@click.option("-o", "--output", type=OutputFile(), metavar="FILE", help="Write the corrected profile.")
@click.option("--contaminated", is_flag=True, help="Take runs of which no step was clean as well.")
@click.option("--force", is_flag=True, help="Overwrite files that exist.")
@general_options
def command(
    path: Path, *, profile_path: Path, output: Path | None, contaminated: bool, force: bool, as_json: bool
) -> None:
    """Correct the times of a profile from recorded runs.

    Fits a factor for the forwards and one for the backwards of each kind of layer on each device
    type to the stage times of real runs, and says how much error is left in them.
    """
    if output is not None:
        check_writable(output, force=force)
    profile, history = read_profile(profile_path), read_runs(path)
    for fault in history.skipped:
        click.echo(f"Warning: {visible(fault)}", err=True)
    choice = choose(history.runs, profile_hash=sha256_of(to_tree(profile)), contaminated=contaminated)
    if str(choice):
        click.echo(f"runs passed over: {choice}", err=True)
    if not choice.used:
        left = f"passed over: {choice}" if str(choice) else "it is empty"
        raise BadInputError(f"{path}: no run to calibrate {profile_path} with; {left}")
    calibration = calibrate(profile, choice.used)
    if output is not None:
        write_file(output, readable_text(to_tree(calibration.profile), profile_of, path=output), force=force)
        announce([output])
    if as_json:
        print_json(_summary(calibration, choice))
    else:
        print_table(factor_table(calibration), sys.stdout)
        click.echo()
        print_lines(calibration_lines(calibration))


def choose(runs: Sequence[RunRecord], *, profile_hash: str, contaminated: bool) -> Choice:
    """Real runs of plans with the profile; contaminated ones only if asked for."""
    own = [run for run in runs if run.profile_hash == profile_hash]
    real = [run for run in own if run.mode is RunMode.REAL]
    used = tuple(run for run in real if contaminated or not run.contaminated)
    return Choice(
        used=used,
        other_profile=len(runs) - len(own),
        dilated=len(own) - len(real),
        contaminated=len(real) - len(used),
    )


def _summary(calibration: Calibration, choice: Choice) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "num_runs": calibration.num_runs,
        "passed_over": {
            "other_profile": choice.other_profile,
            "dilated": choice.dilated,
            "contaminated": choice.contaminated,
        },
        "factors": [
            {
                "device_type": factor.device_type,
                "kind": factor.kind,
                "forward": factor.forward,
                "backward": factor.backward,
            }
            for factor in calibration.factors
        ],
        "before": _errors(calibration.before),
        "after": _errors(calibration.after),
    }


def _errors(spread: ErrorSpread | None) -> dict[str, object] | None:
    return None if spread is None else spread_tree(spread)
