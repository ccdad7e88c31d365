"""Every number of a plan file derived again from the inputs inside it."""

from collections.abc import Iterator

from stagecut.planner.analysis.checks import (
    Check,
    Recheck,
    compared,
    gap_check,
    hash_checks,
    status_faults,
    unchecked,
)
from stagecut.planner.analysis.prediction import play, predict
from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import relative_gap
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.io.documents.complaints import nearest
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.simulator.slicing import slicing_faults
from stagecut.planner.solvers.registry import PROVING, SOLVERS


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


def recheck(plan_file: PlanFile) -> Recheck:
    """Derive hashes, costs, memory and simulated time again, and look for contradictions."""
    prediction, costs = predict(play(plan_file.problem, plan_file.plan)), CostModel(plan_file.problem)
    return Recheck(
        checks=(
            *hash_checks(plan_file.problem, plan_file.provenance),
            *compared("predicted", tree_of(plan_file.predicted), tree_of(prediction)),
            *_certificate(plan_file, prediction.iteration_s),
        ),
        faults=(*faults(costs, plan_file.plan), *slicing_faults(costs, plan_file.plan), *certificate_faults(plan_file)),
        simulated=prediction.iteration_s,
        unchecked=tuple(unchecked(plan_file.certificate)),
    )


def _certificate(plan_file: PlanFile, iteration_s: float) -> Iterator[Check]:
    certificate, options = plan_file.certificate, dict(plan_file.provenance.options)
    if isinstance(solver := options.get("solver"), str):
        yield Check(where="certificate.solver", stated=certificate.solver, derived=solver)
    yield Check(where="certificate.objective_s", stated=certificate.objective_s, derived=iteration_s)
    yield gap_check(certificate.gap, relative_gap(certificate.objective_s, certificate.bound_s))
