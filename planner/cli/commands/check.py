"""`plan check`: recompute every number of a plan file."""

import sys
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stagecut.planner.analysis.checks import BOUNDS, Recheck, Unchecked, Value
from stagecut.planner.analysis.recheck import recheck
from stagecut.planner.analysis.reproof import ClaimOutcome, prove_again
from stagecut.planner.analysis.wave_recheck import recheck_waves
from stagecut.planner.analysis.wave_reproof import prove_waves_again
from stagecut.planner.cli.options.time_notes import note_times
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, quiet_option
from stagecut.planner.cli.parameters.types import time_limit
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.process.notes import notes
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import DIFFERS, EXIT_CODES
from stagecut.planner.cli.views.proof import AnyReproof, proof_sentence, proof_tree
from stagecut.planner.cli.views.wave_plan import rate_words
from stagecut.planner.core.messages.visible import visible
from stagecut.planner.core.result import Status
from stagecut.planner.cost.time_basis import time_basis
from stagecut.planner.io.files.wave_plan_file import AnyPlanFile, WavePlanFile, read_any_plan_file
from stagecut.planner.report.progress import progress, time_words
from stagecut.planner.report.summary import SCHEMA, values_of
from stagecut.planner.report.verdict import resting_on

PROOF_CODES = {
    ClaimOutcome.PROVEN: 0,
    ClaimOutcome.REFUTED: DIFFERS,
    ClaimOutcome.OPEN: EXIT_CODES[Status.NO_PLAN],
    ClaimOutcome.INTERRUPTED: INTERRUPTED,
}


@click.command("check", epilog=example("plan check plan.json", "plan check plan.json --prove --time-limit 300"))
@click.argument("path", metavar="PLAN", type=InputFile())
@click.option("--prove", is_flag=True, help="Prove the bound again, or refute it with a faster plan.")
@click.option(
    "--time-limit",
    "limit_s",
    type=time_limit,
    default="60",
    metavar="SECONDS",
    show_default=True,
    help="Time limit of the proof in seconds; none or 0 for no limit.",
)
@quiet_option
@general_options
@click.pass_context
def command(
    context: click.Context, path: Path, *, prove: bool, limit_s: float | None, quiet: bool, as_json: bool
) -> None:
    """Recompute every number of a plan file.

    Derives the hashes of the inputs, the times and memory of every stage, the simulated iteration time
    (of virtual workers the samples per second) and the gap from the inputs in the file. Also checks that
    the plan lies in the search space, and that solver, options and status are consistent. Prints every
    difference, and exits with code 6 if there is any. The bound is taken on trust unless --prove is
    given, which exits with code 5 if time runs out.
    """
    if not prove and context.get_parameter_source("limit_s") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--time-limit limits the proof; give --prove too")
    plan_file = read_any_plan_file(path)
    note_times(plan_file.problem)
    basis = time_basis(plan_file.problem)
    outcome = recheck_waves(plan_file) if isinstance(plan_file, WavePlanFile) else recheck(plan_file)
    proof = _prove(plan_file, outcome, limit_s, quiet=quiet) if prove else None
    if as_json:
        rests = {"times_rest_on": str(basis.basis), "notes": notes()}
        print_json({**_summary(path, outcome, proof), **rests})
    else:
        _print(visible(path), outcome, proof)
        click.echo(f"{visible(path)}: {resting_on(basis).removeprefix('; ')}")
    proven = 0 if proof is None else PROOF_CODES[proof.outcome]
    context.exit(proven if outcome.agrees or proven == INTERRUPTED else DIFFERS)


def _prove(plan_file: AnyPlanFile, outcome: Recheck, limit_s: float | None, *, quiet: bool) -> AnyReproof | None:
    """Prove the bound again; None if the file has none."""
    words = rate_words if isinstance(plan_file, WavePlanFile) else time_words
    with stop_requests() as cancelled, progress(sys.stderr, quiet=quiet, words=words) as observer:
        shared: dict[str, Any] = {"time_limit_s": limit_s, "observer": observer, "cancelled": cancelled}

        def work() -> AnyReproof | None:
            if isinstance(plan_file, WavePlanFile):
                claimed = plan_file.certificate.bound_samples_per_s
                return None if claimed is None else prove_waves_again(plan_file, claimed, **shared)
            bound_s, iteration_s = plan_file.certificate.bound_s, outcome.simulated
            return None if bound_s is None else prove_again(plan_file, bound_s, iteration_s=iteration_s, **shared)

        return run_cancellable(work, cancelled)


def _summary(path: Path, outcome: Recheck, proof: AnyReproof | None) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "plan": str(path),
        "agrees": outcome.agrees and (proof is None or proof.outcome is not ClaimOutcome.REFUTED),
        "num_checks": len(outcome.checks),
        "differences": [values_of(check, "where", "stated", "derived") for check in outcome.differences],
        "faults": list(outcome.faults),
        "unchecked": [values_of(trusted, "where", "why") for trusted in _trusted(outcome, proof)],
        "proof": None if proof is None else proof_tree(proof),
    }


def _print(path: str, outcome: Recheck, proof: AnyReproof | None) -> None:
    for check in outcome.differences:
        stated, derived = _shown(check.stated), _shown(check.derived)
        click.echo(f"{path}: {check.where}: the file says {stated}, but its inputs give {derived}")
    for fault in outcome.faults:
        click.echo(f"{path}: {visible(fault)}")
    if outcome.agrees:
        click.echo(f"{path}: all {len(outcome.checks)} numbers agree, and the plan is legal")
    else:
        found = f"{len(outcome.differences)} of {len(outcome.checks)} numbers differ"
        click.echo(f"{path}: {found}, and {len(outcome.faults)} rules are broken")
    if proof is not None:
        click.echo(f"{path}: {proof_sentence(proof)}")
    for trusted in _trusted(outcome, proof):
        click.echo(f"{path}: not checked: {trusted.where}: {visible(trusted.why)}")


def _trusted(outcome: Recheck, proof: AnyReproof | None) -> list[Unchecked]:
    is_settled = proof is not None and proof.outcome in {ClaimOutcome.PROVEN, ClaimOutcome.REFUTED}
    return [trusted for trusted in outcome.unchecked if not (is_settled and trusted.where in BOUNDS)]


def _shown(value: Value) -> str:
    return "null" if value is None else visible(value)
