"""Every number of a plan file derived again from the inputs inside it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from stagecut.planner.analysis.certificate_checks import Unchecked, certificate_faults, unchecked
from stagecut.planner.analysis.prediction import play, predict
from stagecut.planner.core.result import relative_gap
from stagecut.planner.core.tolerances import RECOMPUTED
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.io.files.plan_file import PlanFile, input_hashes
from stagecut.planner.io.files.plan_statements import Prediction, StagePrediction
from stagecut.planner.simulator.slicing import slicing_faults

Value = float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One number or hash of a plan file, as stated and as derived."""

    where: str
    """Its place in the file, for example `predicted.iteration_s`."""
    stated: Value
    derived: Value

    @property
    def agrees(self) -> bool:
        """Whether both are the same; numbers up to rounding."""
        if isinstance(self.stated, float) and isinstance(self.derived, float):
            return math.isclose(self.stated, self.derived, rel_tol=RECOMPUTED)
        return self.stated == self.derived


@dataclass(frozen=True, slots=True, kw_only=True)
class Recheck:
    """The outcome of checking a plan file."""

    checks: tuple[Check, ...]
    faults: tuple[str, ...]
    """Rules of the search space that the plan breaks, and claims of the certificate that no search could make."""
    iteration_s: float
    """Iteration time as simulated now."""
    unchecked: tuple[Unchecked, ...]

    @property
    def differences(self) -> tuple[Check, ...]:
        """The numbers that differ."""
        return tuple(check for check in self.checks if not check.agrees)

    @property
    def agrees(self) -> bool:
        """Whether no number differs and no rule is broken."""
        return not self.differences and not self.faults


def recheck(plan_file: PlanFile) -> Recheck:
    """Derive hashes, costs, memory and simulated time again, and look for contradictions."""
    prediction, costs = predict(play(plan_file.problem, plan_file.plan)), CostModel(plan_file.problem)
    return Recheck(
        checks=(
            *_hashes(plan_file),
            *_predictions(plan_file.predicted, prediction),
            *_certificate(plan_file, prediction.iteration_s),
        ),
        faults=(*faults(costs, plan_file.plan), *slicing_faults(costs, plan_file.plan), *certificate_faults(plan_file)),
        iteration_s=prediction.iteration_s,
        unchecked=tuple(unchecked(plan_file)),
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


def _certificate(plan_file: PlanFile, iteration_s: float) -> Iterator[Check]:
    certificate, options = plan_file.certificate, dict(plan_file.provenance.options)
    if isinstance(solver := options.get("solver"), str):
        yield Check(where="certificate.solver", stated=certificate.solver, derived=solver)
    yield Check(where="certificate.objective_s", stated=certificate.objective_s, derived=iteration_s)
    gap = relative_gap(certificate.objective_s, certificate.bound_s)
    if gap is not None and certificate.gap is not None and abs(gap - certificate.gap) <= RECOMPUTED:
        gap = certificate.gap  # the difference of two nearly equal times: compared absolutely
    yield Check(where="certificate.gap", stated=certificate.gap, derived=gap)
