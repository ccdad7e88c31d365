"""Every number of a plan file of virtual workers derived again from the inputs inside it."""

import math
from collections.abc import Iterator, Mapping, Sequence

from stagecut.planner.analysis.recheck import Check, Recheck, Unchecked, hash_checks, status_faults
from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.analysis.wave_prediction import play_waves, predict_waves
from stagecut.planner.core.result import Status
from stagecut.planner.core.tolerances import RECOMPUTED
from stagecut.planner.core.wave_result import WaveResult
from stagecut.planner.cost.wave_costs import WaveCostModel
from stagecut.planner.cost.wave_legality import wave_faults
from stagecut.planner.io.documents.canonical import TreeValue
from stagecut.planner.io.documents.records import tree_of
from stagecut.planner.io.files.wave_plan_file import WavePlanFile

WAVE_BOUND = "certificate.bound_samples_per_s"


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
            *_compared("predicted", tree_of(plan_file.predicted), tree_of(predict_waves(played))),
            *_certificate(plan_file, samples_per_s),
        ),
        faults=(*_plan_faults(plan_file), *_certificate_faults(plan_file)),
        simulated=samples_per_s,
        unchecked=tuple(_unchecked(plan_file)),
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


def _compared(where: str, stated: TreeValue, derived: TreeValue) -> Iterator[Check]:
    """Every number of two trees of the same shape."""
    if isinstance(stated, Mapping) and isinstance(derived, Mapping):
        for key in sorted(stated):
            yield from _compared(f"{where}.{key}", stated[key], derived[key])
    elif isinstance(stated, Sequence) and isinstance(derived, Sequence) and not isinstance(stated, str):
        for index, pair in enumerate(zip(stated, derived, strict=True)):
            yield from _compared(f"{where}[{index}]", *pair)
    else:
        yield Check(where=where, stated=stated, derived=derived)  # type: ignore[arg-type]


def _certificate(plan_file: WavePlanFile, samples_per_s: float) -> Iterator[Check]:
    certificate = plan_file.certificate
    yield Check(where="certificate.solver", stated=certificate.solver, derived=solver_of(plan_file))
    yield Check(where="certificate.samples_per_s", stated=certificate.samples_per_s, derived=samples_per_s)
    gap = certified_waves(plan_file, certificate.samples_per_s).gap
    if gap is not None and certificate.gap is not None and abs(gap - certificate.gap) <= RECOMPUTED:
        gap = certificate.gap  # the difference of two nearly equal rates: compared absolutely
    yield Check(where="certificate.gap", stated=certificate.gap, derived=gap)


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


def _unchecked(plan_file: WavePlanFile) -> Iterator[Unchecked]:
    """The statements that are taken on trust."""
    certificate = plan_file.certificate
    if certificate.bound_samples_per_s is not None:
        yield Unchecked(where=WAVE_BOUND, why=f"claimed by {certificate.solver}; --prove proves it again")
    if certificate.status is not Status.OPTIMAL:
        yield Unchecked(where="certificate.status", why="whether the search was interrupted or hit a limit")
    yield Unchecked(where="provenance", why="whether versions, seed and options are those of the search")
