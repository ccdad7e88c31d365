"""Every number of a plan file of virtual workers derived again from the inputs inside it."""

import math
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
from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.analysis.wave_prediction import play_waves, predict_waves
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.cost.waves.wave_legality import wave_faults
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.wave_plan_file import WavePlanFile


def recheck_waves(plan_file: WavePlanFile) -> Recheck:
    """Derive hashes, costs, memory, staleness and simulated throughput again, and look for contradictions.

    Raises
    ------
    BadInputError
        If the workers would wait for each other forever.
    """
    played = play_waves(plan_file.problem, plan_file.plan)
    samples_per_s = played.timeline.samples_per_s
    return Recheck(
        checks=(
            *hash_checks(plan_file.problem, plan_file.provenance),
            *compared("predicted", tree_of(plan_file.predicted), tree_of(predict_waves(played))),
            *_certificate(plan_file, samples_per_s),
        ),
        faults=(*_plan_faults(plan_file), *_certificate_faults(plan_file)),
        simulated=samples_per_s,
        unchecked=tuple(unchecked(plan_file.certificate)),
    )


def certified_waves(plan_file: WavePlanFile, samples_per_s: float) -> WaveResult:
    """The result that a plan file claims, without a search."""
    certificate = plan_file.certificate
    return WaveResult(
        status=certificate.status,
        solver=certificate.solver,
        seconds=0.0,
        plan=plan_file.plan,
        samples_per_s=samples_per_s,
        bound_samples_per_s=certificate.bound_samples_per_s,
    )


def _plan_faults(plan_file: WavePlanFile) -> tuple[str, ...]:
    waves = plan_file.problem.job.waves
    return () if waves is None else wave_faults(WaveCostModel(plan_file.problem), plan_file.plan, waves)


def solver_of(plan_file: WavePlanFile) -> str:
    """The name of the search that the job asks for."""
    waves = plan_file.problem.job.waves
    return f"waves-{waves.allocation}" if waves is not None else ""


def _certificate(plan_file: WavePlanFile, samples_per_s: float) -> Iterator[Check]:
    certificate = plan_file.certificate
    yield Check(where="certificate.solver", stated=certificate.solver, derived=solver_of(plan_file))
    yield Check(where="certificate.samples_per_s", stated=certificate.samples_per_s, derived=samples_per_s)
    yield gap_check(certificate.gap, certified_waves(plan_file, certificate.samples_per_s).gap)


def _certificate_faults(plan_file: WavePlanFile) -> Iterator[str]:
    """Contradictions between options, status and bound: no search could have ended like this."""
    options, wrong = stated_options(plan_file.provenance, solvers=(solver_of(plan_file),))
    yield from wrong
    certificate = plan_file.certificate
    samples_per_s, bound = certificate.samples_per_s, certificate.bound_samples_per_s
    if bound is not None and bound < samples_per_s * (1 - RECOMPUTED):
        yield f"certificate: the bound of {bound!r} samples/s is below the plan's own {samples_per_s!r}"
    gap = 0.0 if math.isinf(samples_per_s) else certified_waves(plan_file, samples_per_s).gap
    yield from status_faults(certificate.status, gap, asked=options.gap)
