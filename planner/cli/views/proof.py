"""What became of the bound of a plan file, in words and as plain values."""

from stagecut.planner.analysis.reproof import ClaimOutcome, Reproof
from stagecut.planner.analysis.wave_reproof import WaveReproof
from stagecut.planner.core.units import format_seconds
from stagecut.planner.report.summary import values_of

AnyReproof = Reproof | WaveReproof


def proof_tree(proof: AnyReproof) -> dict[str, object]:
    """The proof as plain values."""
    shared = {**values_of(proof, "outcome", "seconds"), **values_of(proof.result, "solver", "stopped_by")}
    if isinstance(proof, Reproof):
        return {"claimed_s": proof.claim.bound_s, **shared, **values_of(proof.result, "bound_s", "objective_s")}
    reached = values_of(proof.result, "bound_samples_per_s", "samples_per_s")
    return {**values_of(proof, "claimed_samples_per_s"), **shared, **reached}


def proof_sentence(proof: AnyReproof) -> str:
    """The proof in one sentence."""
    claimed, found, reached = _figures(proof)
    result, claim, seconds = proof.result, f"the bound of {claimed}", format_seconds(proof.seconds)
    if proof.outcome is ClaimOutcome.PROVEN:
        return f"{claim} is proven again, by {result.solver} in {seconds}"
    if proof.outcome is ClaimOutcome.REFUTED:
        return f"{claim} is refuted: {result.solver} found a plan of {found} in {seconds}"
    proved = "nothing" if reached is None else f"a bound of {reached}"
    end = f"until the {result.stopped_by}" if result.stopped_by else "and cannot prove more"
    return f"{claim} is not proven again: {result.solver} proved {proved} in {seconds}, {end}"


def _figures(proof: AnyReproof) -> tuple[str | None, str | None, str | None]:
    """The claim, the plan found and the bound reached, with enough digits to show any difference beyond rounding."""
    if isinstance(proof, Reproof):
        return _exactly(proof.claim.bound_s), _exactly(proof.result.objective_s), _exactly(proof.result.bound_s)
    result = proof.result
    values = proof.claimed_samples_per_s, result.samples_per_s, result.bound_samples_per_s
    claimed, found, reached = (_exactly(value, unit="samples/s") for value in values)
    return claimed, found, reached


def _exactly(value: float | None, *, unit: str = "s") -> str | None:
    return None if value is None else f"{value:.10g} {unit}"
