"""What a page about virtual workers shows."""

from dataclasses import dataclass

from stagecut.planner.analysis.wave_prediction import PlayedWaves
from stagecut.planner.analysis.wave_what_if import WaveWhatIf
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.core.virtual_workers.wave_run_record import WaveRunRecord
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.report.waves.wave_labels import worker_kinds

MOST_LANES = 64
"""Stages drawn, unless a single worker has more."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WaveContents:
    """A plan of virtual workers with all that is known about it; what is None or empty gets no section."""

    played: PlayedWaves
    result: WaveResult
    """What was found and proven; its history, where it has one, is drawn."""
    provenance: Provenance
    compared: tuple[WaveResult, ...] = ()
    """Results of several allocations of the same devices."""
    what_if: tuple[WaveWhatIf, ...] = ()
    run: WaveRunRecord | None = None
    """A run of this plan."""

    @property
    def shown_workers(self) -> list[int]:
        """Numbers of the workers that are drawn: the first one of each kind before others, as many as there is room."""
        kinds, workers = worker_kinds(self.played.costs), self.played.plan.workers
        shown: list[int] = []
        room = MOST_LANES
        for number in (*self.first_workers, *sorted(other for kind in kinds for other in kind[1:])):
            room -= workers[number].num_stages
            if room >= 0 or not shown:
                shown.append(number)
        return sorted(shown)

    @property
    def first_workers(self) -> list[int]:
        """The first worker of each kind."""
        return [kind[0] for kind in worker_kinds(self.played.costs)]
