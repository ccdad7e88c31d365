"""What a certificate may claim: everything but the bound itself follows from something else in the file."""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.core.result import Status, relative_gap
from stagecut.planner.core.tolerances import EQUAL_TIMES, RECOMPUTED
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.solvers.registry import PROVING, SOLVERS

BOUND = "certificate.bound_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """A statement of the file that nothing else in it confirms."""

    where: str
    """Its place in the file."""
    why: str


def certificate_faults(plan_file: PlanFile) -> Iterator[str]:
    """Claims about solver, options, status and bound that no search could have ended with."""
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
    gap, asked = relative_gap(objective_s, bound_s), f"the requested gap is {options.gap:.3g}"
    is_closed = gap is not None and gap <= options.gap + EQUAL_TIMES
    if certificate.status is not Status.OPTIMAL and is_closed:
        yield f"certificate: status {certificate.status} with a gap of {gap:.3g}, but {asked}: that is optimal"
    if certificate.status is Status.OPTIMAL and gap is None:
        yield "certificate: status optimal without a bound"
    elif certificate.status is Status.OPTIMAL and not is_closed:
        yield f"certificate: status optimal with a gap of {gap:.3g}, but {asked}"


def unchecked(plan_file: PlanFile) -> Iterator[Unchecked]:
    """Statements that are taken on trust."""
    certificate = plan_file.certificate
    if certificate.bound_s is not None:
        yield Unchecked(where=BOUND, why=f"claimed by {certificate.solver}; --prove proves it again")
    if certificate.status is not Status.OPTIMAL:
        yield Unchecked(where="certificate.status", why="whether the search was interrupted or hit a limit")
    if certificate.seconds is not None:
        yield Unchecked(where="certificate.seconds", why="how long the search took")
    yield Unchecked(where="provenance", why="whether versions, seed and options are those of the search")
