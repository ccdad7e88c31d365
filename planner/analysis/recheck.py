"""Every number of a plan file derived again from the inputs inside it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from stagecut.planner.analysis.prediction import play, predict
from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status, relative_gap
from stagecut.planner.core.tolerances import EQUAL_TIMES, RECOMPUTED
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.plan_file import PlanFile, input_hashes
from stagecut.planner.io.files.plan_statements import Prediction, Provenance, StagePrediction
from stagecut.planner.simulator.slicing import slicing_faults
from stagecut.planner.solvers.registry import PROVING, SOLVERS

BOUND = "certificate.bound_s"
Value = float | str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A statement of the file that nothing else in it confirms."""

    where: str
    """Its place in the file."""
    why: str


def certificate_faults(plan_file: PlanFile) -> Iterator[str]:
    """Contradictions between solver, options, status and bound: no search could have ended like this."""
    options, wrong = stated_options(plan_file.provenance)
    yield from wrong
    certificate = plan_file.certificate
    solver, objective_s, bound_s = certificate.solver, certificate.objective_s, certificate.bound_s
    if solver not in SOLVERS:
        yield f"certificate: there is no solver {solver!r}{nearest(solver, SOLVERS)}"
    elif solver not in PROVING and bound_s is not None:
        yield f"certificate: states a bound, but {solver} proves none; only {', '.join(sorted(PROVING))} do"
    if bound_s is not None and bound_s > objective_s * (1 + RECOMPUTED):
        yield f"certificate: the bound of {bound_s!r} s is above the plan's own time of {objective_s!r} s"
    yield from status_faults(certificate.status, relative_gap(objective_s, bound_s), asked=options.gap)


def status_faults(status: Status, gap: float | None, *, asked: float) -> Iterator[str]:
    """Contradictions between a status and the gaps that are left and were asked for."""
    requested = f"the requested gap is {asked:.3g}"
    is_closed = gap is not None and gap <= asked + EQUAL_TIMES
    if status is not Status.OPTIMAL and is_closed:
        yield f"certificate: status {status} with a gap of {gap:.3g}, but {requested}: that is optimal"
    if status is Status.OPTIMAL and gap is None:
        yield "certificate: status optimal without a bound"
    elif status is Status.OPTIMAL and not is_closed:
        yield f"certificate: status optimal with a gap of {gap:.3g}, but {requested}"


def unchecked(plan_file: PlanFile) -> Iterator[Unchecked]:
    """The statements that are taken on trust."""
    certificate = plan_file.certificate
    if certificate.bound_s is not None:
        yield Unchecked(where=BOUND, why=f"claimed by {certificate.solver}; --prove proves it again")
    if certificate.status is not Status.OPTIMAL:
        yield Unchecked(where="certificate.status", why="whether the search was interrupted or hit a limit")
    if certificate.seconds is not None:
        yield Unchecked(where="certificate.seconds", why="how long the search took")
    yield Unchecked(where="provenance", why="whether versions, seed and options are those of the search")


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
    simulated: float
    """As simulated now: the iteration time in seconds, or of virtual workers the samples per second."""
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
            *hash_checks(plan_file.problem, plan_file.provenance),
            *_predictions(plan_file.predicted, prediction),
            *_certificate(plan_file, prediction.iteration_s),
        ),
        faults=(*faults(costs, plan_file.plan), *slicing_faults(costs, plan_file.plan), *certificate_faults(plan_file)),
        simulated=prediction.iteration_s,
        unchecked=tuple(unchecked(plan_file)),
    )


def hash_checks(problem: Problem, provenance: Provenance) -> Iterator[Check]:
    """The hashes of the inputs."""
    stated = dict(provenance.input_hashes)
    for name, derived in sorted(input_hashes(problem).items()):
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
