"""Parts of a proof whose plans are those of one case: see :mod:`stagecut.planner.solvers.search.cases`."""

from stagecut.planner.solvers.exact.agenda import Outcome, Part
from stagecut.planner.solvers.search.cases import Case
from stagecut.planner.solvers.search.search import Search


class CasePart:
    """A part that takes its steps on the problem of its case."""

    def __init__(self, case: Case, part: Part) -> None:
        self._case, self._part = case, part
        self.bound_s = part.bound_s

    @property
    def is_stuck(self) -> bool:
        """Whether another step would prove nothing more."""
        return self._part.is_stuck

    @property
    def is_small(self) -> bool:
        """Whether a step is too little work for another thread."""
        return self._part.is_small

    def step(self, search: Search) -> Outcome:
        """A step of the part; plans met on the way are offered as plans of the whole problem."""
        with self._case.inside(search) as own:
            outcome = self._part.step(own)
        return Outcome(tuple(CasePart(self._case, part) for part in outcome.parts), outcome.proven_s)
