"""What a page about a plan shows."""

from dataclasses import dataclass

from stagecut.planner.analysis.prediction import Played
from stagecut.planner.analysis.what_if import WhatIfOutcome
from stagecut.planner.core.result import Result
from stagecut.planner.core.run_record import RunRecord
from stagecut.planner.io.files.plan_statements import Provenance
from stagecut.planner.simulator.binding import Binding


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contents:
    """A plan with all that is known about it; what is None or empty gets no section."""

    played: Played
    result: Result
    """What was found and proven; its history, where it has one, is drawn."""
    binding: Binding
    provenance: Provenance
    even_split_s: float | None = None
    """Iteration time of the even split: infinite if it does not fit, None for no comparison."""
    compared: tuple[Result, ...] = ()
    """Results of several solvers on the same problem."""
    what_if: tuple[WhatIfOutcome, ...] = ()
    run: RunRecord | None = None
    """A run of this plan."""
