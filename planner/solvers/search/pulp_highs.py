"""HiGHS behind PuLP: silent, within the budget of the search, the same answer for the same seed."""

from typing import Any

import pulp

from stagecut.planner.solvers.search.highs import EXACT, LONGEST_S, run_highs
from stagecut.planner.solvers.search.interruption import uninterrupted
from stagecut.planner.solvers.search.search import Search


class _Engine(pulp.HiGHS):  # type: ignore[misc]
    """PuLP's engine with the number of threads it is given, whoever called HiGHS before, and within the budget."""

    def __init__(self, search: Search, **options: object) -> None:
        super().__init__(**options)
        self._search = search

    def callSolver(self, lp: pulp.LpProblem) -> None:  # noqa: N802
        """Run HiGHS, which calls back and must not be interrupted; PuLP reads the answer."""
        # Time has passed since the engine was created: PuLP hands the program over row by row.
        _, seconds = lp.solverModel.getOptionValue("time_limit")
        lp.solverModel.setOptionValue("time_limit", min(seconds, self._search.seconds_left, LONGEST_S))
        with uninterrupted():
            run_highs(lp.solverModel, threads=self.threads)


def highs(search: Search, seconds: float, *, gap: float = 0.0, presolve: str = "off") -> pulp.LpSolver:
    """The PuLP engine for one program, with the threads, seed and budget of a search.

    Parameters
    ----------
    seconds
        Time limit; infinite for none.
    gap
        Relative gap at which to stop. With 0 the tolerances are :data:`~stagecut.planner.solvers.search.highs.EXACT`.
    presolve
        Off by default, since with it HiGHS calls some worse solutions optimal.
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
