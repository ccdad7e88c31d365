"""What a certificate may claim: everything but the bound itself follows from something else in the file."""

from collections.abc import Iterator
from dataclasses import dataclass

from stagecut.planner.cli.options.stated import stated_options
from stagecut.planner.core.result import Status, relative_gap
from stagecut.planner.core.tolerances import EQUAL_TIMES
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.solvers.registry import PROVING, SOLVERS

TOLERANCE = 1e-9
"""Relative: another version of numpy may add in another order."""
BOUND = "certificate.bound_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """What a file says that nothing else in it tells."""

    where: str
    """Its place in the file."""
    why: str


def certificate_faults(plan_file: PlanFile) -> Iterator[str]:
    """What no search can have ended with: the solver, its options, and what it says it has proven."""
    options, wrong = stated_options(plan_file.provenance)
    yield from wrong
    yield from _solver_faults(plan_file)
    certificate = plan_file.certificate
    objective_s, bound_s = certificate.objective_s, certificate.bound_s
    if bound_s is not None and bound_s > objective_s * (1 + TOLERANCE):
        yield f"certificate: the bound {bound_s!r} s is above the time {objective_s!r} s of the plan itself"
    gap, asked = relative_gap(objective_s, bound_s), f"{options.gap:.3g} was asked for"
    is_closed = gap is not None and gap <= options.gap + EQUAL_TIMES
    if certificate.status is not Status.OPTIMAL and is_closed:
        yield f"certificate: status {certificate.status} with a gap of {gap:.3g}, where {asked}: that is optimal"
    if certificate.status is Status.OPTIMAL and gap is None:
        yield "certificate: status optimal without a bound"
    elif certificate.status is Status.OPTIMAL and not is_closed:
        yield f"certificate: status optimal with a gap of {gap:.3g}, where {asked}"


def _solver_faults(plan_file: PlanFile) -> Iterator[str]:
    certificate = plan_file.certificate
    solver = certificate.solver
    if solver not in SOLVERS:
        yield f"certificate: there is no solver {solver!r}{nearest(solver, SOLVERS)}"
    elif solver not in PROVING and certificate.bound_s is not None:
        yield f"certificate: there is a bound, and {solver} proves none; {', '.join(sorted(PROVING))} do"


def unchecked(plan_file: PlanFile) -> Iterator[Unchecked]:
    """What is taken on trust."""
    certificate = plan_file.certificate
    if certificate.bound_s is not None:
        yield Unchecked(where=BOUND, why=f"the word of {certificate.solver}; --prove proves it again")
    if certificate.status is not Status.OPTIMAL:
        yield Unchecked(where="certificate.status", why="whether the search was interrupted or had a limit")
    if certificate.seconds is not None:
        yield Unchecked(where="certificate.seconds", why="how long the search took")
    yield Unchecked(where="provenance", why="versions, seed and options that the search had; they are ones it may have")
