"""`plan check`: recompute every number of a plan file."""

import sys
from pathlib import Path

import click
from click.core import ParameterSource

from stagecut.planner.analysis.recheck import BOUND, Recheck, Unchecked, Value, recheck
from stagecut.planner.analysis.reproof import ClaimOutcome, Reproof, prove_again
from stagecut.planner.cli.parameters.files import InputFile
from stagecut.planner.cli.parameters.groups import example, general_options, quiet_option
from stagecut.planner.cli.parameters.types import time_limit
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.process.writing import print_json
from stagecut.planner.cli.views.answers import DIFFERS, EXIT_CODES
from stagecut.planner.core.result import Status
from stagecut.planner.core.units import format_seconds
from stagecut.planner.core.visible import visible
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA, values_of

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
    and the gap from the inputs in the file. Also checks that the plan lies in the search space, and that
    solver, options and status are consistent. Prints every difference, and exits with code 6 if there is
    any. The bound is taken on trust unless --prove is given, which exits with code 5 if time runs out.
    """
    if not prove and context.get_parameter_source("limit_s") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--time-limit limits the proof; give --prove too")
    plan_file = read_plan_file(path)
    outcome = recheck(plan_file)
    proof = _prove(plan_file, outcome, limit_s, quiet=quiet) if prove else None
    if as_json:
        print_json(_summary(path, outcome, proof))
    else:
        _print(visible(path), outcome, proof)
    proven = 0 if proof is None else PROOF_CODES[proof.outcome]
    context.exit(proven if outcome.agrees or proven == INTERRUPTED else DIFFERS)


def _prove(plan_file: PlanFile, outcome: Recheck, limit_s: float | None, *, quiet: bool) -> Reproof | None:
    """Prove the bound again; None if the file has none."""
    bound_s = plan_file.certificate.bound_s
    if bound_s is None:
        return None
    with stop_requests() as cancelled, progress(sys.stderr, quiet=quiet) as observer:
        return run_cancellable(
            lambda: prove_again(
                plan_file,
                bound_s,
                iteration_s=outcome.iteration_s,
                time_limit_s=limit_s,
                observer=observer,
                cancelled=cancelled,
            ),
            cancelled,
        )


def _summary(path: Path, outcome: Recheck, proof: Reproof | None) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "plan": str(path),
        "agrees": outcome.agrees and (proof is None or proof.outcome is not ClaimOutcome.REFUTED),
        "num_checks": len(outcome.checks),
        "differences": [values_of(check, "where", "stated", "derived") for check in outcome.differences],
        "faults": list(outcome.faults),
        "unchecked": [values_of(trusted, "where", "why") for trusted in _trusted(outcome, proof)],
        "proof": None
        if proof is None
        else {
            "claimed_s": proof.claim.bound_s,
            **values_of(proof, "outcome", "seconds"),
            **values_of(proof.result, "bound_s", "objective_s", "solver", "stopped_by"),
        },
    }


def _print(path: str, outcome: Recheck, proof: Reproof | None) -> None:
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
        click.echo(f"{path}: {_proof_sentence(proof)}")
    for trusted in _trusted(outcome, proof):
        click.echo(f"{path}: not checked: {trusted.where}: {visible(trusted.why)}")


def _trusted(outcome: Recheck, proof: Reproof | None) -> list[Unchecked]:
    is_settled = proof is not None and proof.outcome in {ClaimOutcome.PROVEN, ClaimOutcome.REFUTED}
    return [trusted for trusted in outcome.unchecked if not (is_settled and trusted.where == BOUND)]


def _proof_sentence(proof: Reproof) -> str:
    result, claim = proof.result, f"the bound of {_exactly(proof.claim.bound_s)}"
    seconds = format_seconds(proof.seconds)
    if proof.outcome is ClaimOutcome.PROVEN:
        return f"{claim} is proven again, by {result.solver} in {seconds}"
    if proof.outcome is ClaimOutcome.REFUTED:
        return f"{claim} is refuted: {result.solver} found a plan of {_exactly(result.objective_s)} in {seconds}"
    reached = "nothing" if result.bound_s is None else f"a bound of {_exactly(result.bound_s)}"
    end = f"until the {result.stopped_by}" if result.stopped_by else "and cannot prove more"
    return f"{claim} is not proven again: {result.solver} proved {reached} in {seconds}, {end}"


def _exactly(seconds: float | None) -> str:
    """Enough digits to show any difference beyond rounding."""
    return f"{seconds:.10g} s"


def _shown(value: Value) -> str:
    return "null" if value is None else visible(value)
