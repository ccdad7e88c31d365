"""The proof of a problem in parts: always the part with the lowest bound takes the next step, several at a time.

A part holds some of the plans and a bound on them; a step replaces it by smaller parts, or by itself with a better
bound. The next parts are chosen once the results of all but the last `UNDER_WAY` steps are known, however many threads
there are, and results are taken in the order in which the steps were begun: the same answer for any number of threads.
"""

import heapq
import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.solvers.search.crew import Crew
from stagecut.planner.solvers.search.options import RowChoice
from stagecut.planner.solvers.search.search import Search

UNDER_WAY = 8
"""Steps begun whose results are not known yet: more threads are of no use."""
FIRST_POLISH, MORE_PROOF = 32, 1.05
"""A step that only looks for better plans comes after so many steps, and again after so many times as many; at least
`UNDER_WAY` later, so that two are never under way. Such steps are short, as others wait for their results: when each
was a whole descent, drawn problem 48 had 36 questions asked within a minute in place of 82, for the same plan."""


class Part(Protocol):
    """Some of the plans."""

    bound_s: float
    """None of them is faster, except those simulated."""

    @property
    def is_stuck(self) -> bool:
        """Whether another step would prove nothing more."""

    @property
    def is_small(self) -> bool:
        """Whether a step is too little work for another thread."""

    def step(self, search: Search) -> "Outcome":
        """Prove more, simulating the plans met on the way; called from any thread, but from one at a time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one step made of a part."""

    parts: Sequence[Part]
    proven_s: float = math.inf
    """None of the plans in none of the new parts is faster, except those simulated."""


def limit_of(search: Search) -> float:
    """Plans whose rows reach this are of no interest: they cannot open the gap again."""
    return search.best_s * (1 - search.options.gap)


class Agenda:
    """The parts that are still open, and what is proven about the others.

    Parts to `polish` plans prove nothing; they take their steps in turn.
    """

    def __init__(self, search: Search, parts: Iterable[Part], polish: Iterable[Part] = ()) -> None:
        self._search = search
        self._shared = search.options.rows is RowChoice.SHARED
        self._waiting: list[tuple[float, int, Part]] = []
        self._under_way: deque[tuple[float, Search]] = deque()
        self._polish, self._next_polish, self._num_steps = deque(polish), FIRST_POLISH, 0
        self._num_parts = 0
        self._proven_s = math.inf
        self._stuck: list[Part] = []
        self._add(parts)

    @property
    def bound_s(self) -> float:
        """No plan is faster, except those simulated."""
        weakest_s = self._waiting[0][0] if self._waiting else math.inf
        return min([self._proven_s, weakest_s, *(bound_s for bound_s, _ in self._under_way), self._stuck_s])

    def run(self) -> None:
        """Take steps until the bound is good enough or cannot rise, or the budget is spent."""
        with Crew[Outcome](self._search.options.jobs, self._search) as crew:
            while not self._search.out_of_budget:
                self._search.raise_bound(self.bound_s)
                if self._is_done:
                    break
                self._hand_out(crew)
                if not self._under_way:
                    break
                outcome = crew.next_result()
                self._search.absorb(self._under_way.popleft()[1])
                self._proven_s = min(self._proven_s, outcome.proven_s)
                self._add(outcome.parts)

    @property
    def _is_done(self) -> bool:
        # In the shared rows only their optimum settles it, whatever the gap.
        return self._stuck_s <= self.bound_s or (self._search.closed and not self._shared)

    @property
    def _stuck_s(self) -> float:
        return min((part.bound_s for part in self._stuck), default=math.inf)

    def _add(self, parts: Iterable[Part]) -> None:
        for part in parts:
            self._num_parts += 1
            if part.is_stuck:
                self._stuck.append(part)
            else:
                heapq.heappush(self._waiting, (part.bound_s, self._num_parts, part))

    def _hand_out(self, crew: Crew[Outcome]) -> None:
        """Begin steps of the weakest parts; the others wait until the bound needs them."""
        limit_s = math.inf if self._shared else limit_of(self._search) * (1 - EQUAL_TIMES)
        while self._waiting and len(self._under_way) < UNDER_WAY and self._waiting[0][0] < limit_s:
            bound_s, part = self._next()
            fork = self._search.fork()
            self._under_way.append((bound_s, fork))
            crew.hand_out(partial(part.step, fork), is_small=part.is_small)

    def _next(self) -> tuple[float, Part]:
        """The part that takes the next step, and the bound on what it holds."""
        self._num_steps += 1
        if self._polish and self._num_steps == self._next_polish:
            self._next_polish = max(self._num_steps + UNDER_WAY, int(self._num_steps * MORE_PROOF))
            self._polish.rotate(-1)
            return math.inf, self._polish[-1]
        bound_s, _, part = heapq.heappop(self._waiting)
        return bound_s, part
