"""Every number of a plan file derived again from the inputs that it holds."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from planner.cli.prediction import play, predict
from planner.core.result import Status, relative_gap
from planner.cost.cost_model import CostModel
from planner.cost.legality import faults
from planner.io.plan_file import Certificate, PlanFile, Prediction, StagePrediction, input_hashes
from planner.simulator.slicing import slicing_faults
from planner.solvers.options import SolveOptions
from planner.solvers.search import ROUNDING

TOLERANCE = 1e-9
"""Relative: another version of numpy may add in another order."""

Value = float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number of a plan file, or one rule it has to keep."""

    where: str
    """Its place in the file."""
    stated: Value
    derived: Value

    @property
    def agrees(self) -> bool:
        """Whether both are the same; numbers up to rounding."""
        if isinstance(self.stated, float) and isinstance(self.derived, float):
            return self.stated == self.derived or math.isclose(self.stated, self.derived, rel_tol=TOLERANCE)
        return self.stated == self.derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """What came of it."""

    checks: tuple[Check, ...]
    faults: tuple[str, ...]
    """Ways in which the plan leaves the search space, or the certificate contradicts itself."""

    @property
    def differences(self) -> tuple[Check, ...]:
        """The numbers that differ."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """Whether there is nothing to complain of."""
        return not self.differences and not self.faults


def recheck(plan_file: PlanFile) -> Recheck:
    """Derive hashes, costs, memory and simulated time again, and look for contradictions."""
    prediction, costs = predict(play(plan_file.problem, plan_file.plan)), CostModel(plan_file.problem)
    return Recheck(
        checks=(
            *_hashes(plan_file),
            *_predictions(plan_file.predicted, prediction),
            *_certificate(plan_file.certificate, prediction.iteration_s),
        ),
        faults=(
            *faults(costs, plan_file.plan),
            *slicing_faults(costs, plan_file.plan),
            *_contradictions(plan_file),
        ),
    )


def _hashes(plan_file: PlanFile) -> Iterator[Check]:
    stated = dict(plan_file.provenance.input_hashes)
    for name, derived in sorted(input_hashes(plan_file.problem).items()):
        yield Check(where=f"provenance.input_hashes.{name}", stated=stated.get(name), derived=derived)


def _predictions(stated: Prediction, derived: Prediction) -> Iterator[Check]:
    yield Check(where="predicted.iteration_s", stated=stated.iteration_s, derived=derived.iteration_s)
    for index, (said, found) in enumerate(zip(stated.stages, derived.stages, strict=True)):
        for field in fields(StagePrediction):
            where = f"predicted.stages[{index}].{field.name}"
            yield Check(where=where, stated=getattr(said, field.name), derived=getattr(found, field.name))


def _certificate(certificate: Certificate, iteration_s: float) -> Iterator[Check]:
    yield Check(where="certificate.objective_s", stated=certificate.objective_s, derived=iteration_s)
    gap = relative_gap(certificate.objective_s, certificate.bound_s)
    if gap is not None and certificate.gap is not None and abs(gap - certificate.gap) <= TOLERANCE:
        gap = certificate.gap  # a difference of two nearly equal times: compared absolutely
    yield Check(where="certificate.gap", stated=certificate.gap, derived=gap)


def _contradictions(plan_file: PlanFile) -> Iterator[str]:
    """What a certificate cannot claim, whatever the search did."""
    certificate = plan_file.certificate
    objective_s, bound_s = certificate.objective_s, certificate.bound_s
    if bound_s is not None and bound_s > objective_s * (1 + TOLERANCE):
        yield f"certificate: the bound {bound_s!r} s is above the time {objective_s!r} s of the plan itself"
    if certificate.status is not Status.OPTIMAL:
        return
    gap, asked = relative_gap(objective_s, bound_s), dict(plan_file.provenance.options).get("gap")
    allowed = float(asked) if isinstance(asked, int | float) else SolveOptions().gap
    if gap is None:
        yield "certificate: status optimal without a bound"
    elif gap > allowed + ROUNDING:
        yield f"certificate: status optimal with a gap of {gap:.3g}, where {allowed:.3g} was asked for"
