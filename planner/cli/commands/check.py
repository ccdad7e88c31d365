"""`plan check`: derive every number of a plan file again."""

import math
import sys
from pathlib import Path

import click
from click.core import ParameterSource

from stagecut.planner.cli.certificate_checks import BOUND, Unchecked
from stagecut.planner.cli.options.example import example
from stagecut.planner.cli.options.files import InputFile
from stagecut.planner.cli.options.groups import general_options
from stagecut.planner.cli.options.outputs import print_json
from stagecut.planner.cli.options.types import time_limit
from stagecut.planner.cli.process.cancellable import run_cancellable, stop_requests
from stagecut.planner.cli.process.interruptions import INTERRUPTED
from stagecut.planner.cli.recheck import Recheck, Value, recheck
from stagecut.planner.cli.reproof import Outcome, Proof, prove_again
from stagecut.planner.cli.views.answers import DIFFERS, EXIT_CODES
from stagecut.planner.core.result import Status
from stagecut.planner.core.units import format_seconds
from stagecut.planner.core.visible import visible
from stagecut.planner.io.files.plan_file import PlanFile, read_plan_file
from stagecut.planner.report.progress import progress
from stagecut.planner.report.summary import SCHEMA

PROOF_CODES = {
    Outcome.PROVEN: 0,
    Outcome.REFUTED: DIFFERS,
    Outcome.OPEN: EXIT_CODES[Status.NO_PLAN],
    Outcome.INTERRUPTED: INTERRUPTED,
}


@click.command("check", epilog=example("plan check plan.json", "plan check plan.json --prove --time-limit 300"))
@click.argument("path", metavar="PLAN", type=InputFile())
@click.option("--prove", is_flag=True, help="Prove the bound again, or find a plan that refutes it.")
@click.option(
    "--time-limit",
    "limit_s",
    type=time_limit,
    default="60",
    metavar="SECONDS",
    help="For the proof; none or 0: no limit.  [default: 60]",
)
@click.option("--quiet", is_flag=True, help="Nothing on stderr but errors.")
@general_options
@click.pass_context
def command(context: click.Context, path: Path, *, prove: bool, limit_s: float, quiet: bool, as_json: bool) -> None:
    """Derive every number of a plan file again.

    From the inputs in the file: their hashes, the times and memory of every stage, the simulated
    iteration time, the gap; whether the plan is one of the search space; whether solver, options and
    status can be as stated. Exit code 6 and a list of what differs unless all agree. The bound is
    the word of the solver, unless --prove proves it again: exit code 5 where time is too short.
    """
    if not prove and context.get_parameter_source("limit_s") is ParameterSource.COMMANDLINE:
        raise click.UsageError("--time-limit is for the proof; give --prove too")
    plan_file = read_plan_file(path)
    outcome = recheck(plan_file)
    proof = _prove(plan_file, outcome, limit_s, quiet=quiet) if prove else None
    if as_json:
        print_json(_summary(path, outcome, proof))
    else:
        _print(visible(path), outcome, proof)
    proven = 0 if proof is None else PROOF_CODES[proof.outcome]
    context.exit(proven if outcome.agrees or proven == INTERRUPTED else DIFFERS)


def _prove(plan_file: PlanFile, outcome: Recheck, limit_s: float, *, quiet: bool) -> Proof | None:
    """None where the file has no bound."""
    bound_s = plan_file.certificate.bound_s
    if bound_s is None:
        return None
    with stop_requests() as cancelled, progress(sys.stderr, quiet=quiet) as observer:
        return run_cancellable(
            lambda: prove_again(
                plan_file,
                bound_s,
                iteration_s=outcome.iteration_s,
                time_limit_s=None if math.isinf(limit_s) else limit_s,
                observer=observer,
                cancelled=cancelled,
            ),
            cancelled,
        )


def _summary(path: Path, outcome: Recheck, proof: Proof | None) -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "plan": str(path),
        "agrees": outcome.agrees and (proof is None or proof.outcome is not Outcome.REFUTED),
        "num_checks": len(outcome.checks),
        "differences": [
            {"where": check.where, "stated": check.stated, "derived": check.derived} for check in outcome.differences
        ],
        "faults": list(outcome.faults),
        "unchecked": [{"where": trusted.where, "why": trusted.why} for trusted in _trusted(outcome, proof)],
        "proof": None if proof is None else _proof_summary(proof),
    }


def _proof_summary(proof: Proof) -> dict[str, object]:
    result = proof.result
    return {
        "outcome": str(proof.outcome),
        "claimed_s": proof.claim.bound_s,
        "bound_s": result.bound_s,
        "objective_s": result.objective_s,
        "solver": result.solver,
        "seconds": proof.seconds,
        "stopped_by": result.stopped_by,
    }


def _print(path: str, outcome: Recheck, proof: Proof | None) -> None:
    for check in outcome.differences:
        click.echo(
            f"{path}: {check.where}: the file says {_shown(check.stated)}, its inputs give {_shown(check.derived)}"
        )
    for fault in outcome.faults:
        click.echo(f"{path}: {visible(fault)}")
    if outcome.agrees:
        click.echo(f"{path}: all {len(outcome.checks)} numbers agree, and the plan is legal")
    else:
        found = f"{len(outcome.differences)} of {len(outcome.checks)} numbers differ"
        click.echo(f"{path}: {found}, {len(outcome.faults)} rules are broken")
    if proof is not None:
        click.echo(f"{path}: {_proof_sentence(proof)}")
    for trusted in _trusted(outcome, proof):
        click.echo(f"{path}: not checked: {trusted.where}: {visible(trusted.why)}")


def _trusted(outcome: Recheck, proof: Proof | None) -> list[Unchecked]:
    """What is left unchecked."""
    is_settled = proof is not None and proof.outcome in {Outcome.PROVEN, Outcome.REFUTED}
    return [trusted for trusted in outcome.unchecked if not (is_settled and trusted.where == BOUND)]


def _proof_sentence(proof: Proof) -> str:
    result, claim = proof.result, f"the bound of {_exactly(proof.claim.bound_s)}"
    seconds = format_seconds(proof.seconds)
    if proof.outcome is Outcome.PROVEN:
        return f"{claim} is proven again, by {result.solver} in {seconds}"
    if proof.outcome is Outcome.REFUTED:
        return f"{claim} is refuted: {result.solver} found a plan of {_exactly(result.objective_s)} in {seconds}"
    reached = "nothing" if result.bound_s is None else f"a bound of {_exactly(result.bound_s)}"
    end = f"before the {result.stopped_by}" if result.stopped_by else "and has no more to prove it with"
    return f"{claim} is not proven again: {result.solver} proved {reached} in {seconds}, {end}"


def _exactly(seconds: float | None) -> str:
    """So many digits as tell what differs by more than rounding."""
    return f"{seconds:.10g} s"


def _shown(value: Value) -> str:
    """A value as the file writes it."""
    return "null" if value is None else visible(value)
