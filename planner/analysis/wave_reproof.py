"""The bound of a plan file of virtual workers proven again, or refuted."""

import threading
from dataclasses import dataclass, replace

from stagecut.planner.analysis.reproof import ClaimOutcome
from stagecut.planner.analysis.stated_options import stated_options
from stagecut.planner.analysis.wave_recheck import solver_of
from stagecut.planner.core.numerics.tolerances import RECOMPUTED
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.files.wave_plan_file import WavePlanFile
from stagecut.planner.workers.wave_search import WaveObserver


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveReproof:
    """How far a search got with the bound of a plan file."""

    claimed_samples_per_s: float
    result: WaveResult

    @property
    def seconds(self) -> float:
        """Duration of the search."""
        return self.result.seconds

    @property
    def outcome(self) -> ClaimOutcome:
        """What became of the claim that no plan makes more samples per second."""
        found, bound = self.result.samples_per_s, self.result.bound_samples_per_s
        if found is not None and found > self.claimed_samples_per_s * (1 + RECOMPUTED):
            return ClaimOutcome.REFUTED
        if bound is not None and bound <= self.claimed_samples_per_s * (1 + RECOMPUTED):
            return ClaimOutcome.PROVEN
        return ClaimOutcome.INTERRUPTED if self.result.status is Status.INTERRUPTED else ClaimOutcome.OPEN


def prove_waves_again(
    plan_file: WavePlanFile,
    claimed_samples_per_s: float,
    *,
    time_limit_s: float | None,
    observer: WaveObserver,
    cancelled: threading.Event,
) -> WaveReproof:
    """Search again with the options of the file, as far as it takes to reach the bound; any thread may stop it.

    Raises
    ------
    UnsupportedError
        If the options ask for something that this system lacks.
    """
    # Imported here: it loads HiGHS.
    from stagecut.planner.workers.solving import solve_waves

    options, _ = stated_options(plan_file.provenance, solvers=(solver_of(plan_file),))
    gap = plan_file.certificate.gap or 0.0
    options = replace(options, time_limit_s=time_limit_s, gap=min(gap, options.gap))
    result = solve_waves(plan_file.problem, options, observer=observer, cancelled=cancelled)
    return WaveReproof(claimed_samples_per_s=claimed_samples_per_s, result=result)
