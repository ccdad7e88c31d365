"""HiGHS as PuLP calls it: silent, on a time limit, stopped by Ctrl-C, the same answer for the same seed."""

from typing import Any

import pulp

from stagecut.planner.solvers.search.highs import run_highs
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.search import Search

LONGEST_S = 1e7
"""What "no time limit" is for a solver."""
TOLERANCE = 1e-9
"""Of the rows of a program that is solved to its optimum."""
INTEGER_TOLERANCE = 1e-7
"""Of its integers: HiGHS errs more often with a tighter one, and ends with errors more often with a looser one."""
EXACT = {
    "mip_feasibility_tolerance": INTEGER_TOLERANCE,
    "primal_feasibility_tolerance": TOLERANCE,
    "dual_feasibility_tolerance": TOLERANCE,
}


class _Engine(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's own, on as many threads as it is told, whoever has called HiGHS before, and within the limits."""

    def __init__(self, search: Search, **options: object) -> None:
        super().__init__(**options)
        self._search = search

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Run it, which calls back and lets no exception through; PuLP reads the answer."""
        # Seconds went by since the engine was made: PuLP hands the program over row by row.
        _, seconds = lp.solverModel.getOptionValue("time_limit")
        lp.solverModel.setOptionValue("time_limit", min(seconds, self._search.seconds_left, LONGEST_S))
        with uninterrupted():
            run_highs(lp.solverModel, threads=self.threads)


def highs(search: Search, seconds: float, *, gap: float = 0.0, presolve: str = "off") -> pulp.LpSolver:
    """The engine of one program.

    Parameters
    ----------
    search
        Says how many threads, with which seed, and whether to stop.
    seconds
        Time limit; infinite for none.
    gap
        Relative, of a solution that is good enough. With 0 the tolerances are :data:`EXACT`, else the usual ones.
    presolve
        Off by default: with it some worse plans are called optimal, see :mod:`planner.solvers.reference.textbook_milp`.
    """

    def stop_if_cancelled(kind: object, message: str, data_out: object, data_in: Any, owner: object) -> None:
        data_in.user_interrupt = search.out_of_budget

    return _Engine(
        search,
        # Callbacks never fire while the output is off.
        msg=True,
        log_to_console=False,
        callbackTuple=(stop_if_cancelled, None),
        callbacksToActivate=[pulp.HiGHS.hscb.HighsCallbackType.kCallbackMipInterrupt],
        timeLimit=min(max(0.0, seconds), LONGEST_S),
        gapRel=gap,
        gapAbs=0.0,
        threads=search.options.threads,
        random_seed=search.options.seed,
        presolve=presolve,
        **(EXACT if gap == 0 else {}),
    )
