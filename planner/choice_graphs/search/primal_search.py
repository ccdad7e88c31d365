"""The search for good choices: rounds of walks, from the best choice and from those that a bound suggests."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import count

import numpy as np

from stagecut.planner.choice_graphs.contraction.contract import ContractedGraph
from stagecut.planner.choice_graphs.contraction.pieces import UsagePieces
from stagecut.planner.choice_graphs.search.guide import Guide, Suggestion
from stagecut.planner.choice_graphs.search.prices import prices_of
from stagecut.planner.choice_graphs.search.problem import Problem, problem_of
from stagecut.planner.choice_graphs.search.starts import least_usage, repaired
from stagecut.planner.choice_graphs.search.state import state_of
from stagecut.planner.choice_graphs.search.walk import walk, walker_of
from stagecut.planner.core.numerics.arrays import Floats, Ints

NUM_STEPS = 20
"""Steps of a round, each a little colder than the one before."""
TREES_PER_GROUP, MOST_TREES = 4, 1000
"""Trees chosen in a step."""
SIZES = (30, 200)
"""Groups of the largest trees, in turn once all temperatures had theirs."""
HOTTEST = (1e-6, 1e-7, 1e-5, 1e-4, 1e-3)
"""Temperatures at which rounds begin, in shares of the cost, by turns."""
COLDEST = 1e-2
"""The last temperature of a round, in shares of its first."""
PRICED = 0.6
"""Share of a round in which usage has its full price, which then falls to nothing: what room is left gets filled."""
WORTH_A_WALK = 1.02
"""How much dearer than the best choice a suggested one may be to begin a round."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    choice: Ints
    price: Ints


class PrimalSearch:
    """The best choice of the groups so far; suggestions may come from other threads.

    Parameters
    ----------
    on_solution
        Called with every choice of the nodes that is better than all before, and its cost.
    """

    def __init__(
        self,
        contracted: ContractedGraph,
        pieces: UsagePieces,
        *,
        seed: int = 0,
        threads: int = 1,
        on_solution: Callable[[Ints, int], None] = lambda _choices, _cost: None,
    ) -> None:
        self.problem: Problem = problem_of(contracted, pieces)
        self.best: Ints | None = None
        """(groups,)"""
        self.cost: int | None = None
        self._contracted, self._time = contracted, pieces.time
        self._seed, self._threads, self._on_solution = seed, threads, on_solution
        self._price = np.zeros(len(self.problem.cost), dtype=np.int64)
        self._numbers = count()
        self._suggested: _Start | None = None
        self._lock = threading.Lock()

    def begin(self) -> bool:
        """Take the choice of least usage, if it is legal or can be made so; whether there is one."""
        return self._offer(least_usage(self.problem), self._price)

    def suggest(self, choices: Ints) -> bool:
        """Make choices of the nodes legal and keep them for a round; whether that was possible."""
        try:
            return self._offer(self._contracted.restrict(choices), self._price)
        except ValueError:
            return False

    def set_multipliers(self, time: Ints, multiplier: Floats) -> None:
        """Let usage have a price: cost per unit at each of the given moments."""
        at = np.searchsorted(self._time, time)
        known = at < len(self._time)
        known[known] = self._time[at[known]] == time[known]
        by_moment = np.zeros(len(self._time))
        by_moment[at[known]] = multiplier[known]
        self._price = prices_of(self.problem, by_moment)

    def run(self, *, stop: Callable[[], bool], num_rounds: int | None = None) -> None:
        """Walk until told to stop, or for so many rounds; nothing if no legal choice is known."""
        with ThreadPoolExecutor(self._threads) as pool:
            for _ in count() if num_rounds is None else range(num_rounds):
                if stop() or self.best is None:
                    return
                numbers = [next(self._numbers) for _ in range(self._threads)]
                starts = [self._start(each) for each in numbers]
                for best, total in pool.map(lambda each, start: self._walk(each, start, stop), numbers, starts):
                    self._keep(best, total)

    def guide(self, *, stop: Callable[[], bool], on_bound: Callable[[int], None]) -> None:
        """Look for multipliers, and for choices to begin with, until told to stop or there is nothing to hope for.

        Parameters
        ----------
        on_bound
            Called with every better bound on the cost of all legal choices.
        """

        def hear(suggestion: Suggestion) -> bool:
            self._offer(suggestion.choice, prices_of(self.problem, suggestion.multiplier))
            if suggestion.bound is not None:
                on_bound(suggestion.bound)
            return not stop()

        Guide(problem=self.problem).run(upper=lambda: self.cost, goes_on=hear)

    def _start(self, number: int) -> _Start:
        """The newest suggestion and the best choice, by turns."""
        assert self.best is not None
        with self._lock:
            if number % 2 == 1 and self._suggested is not None:
                suggested, self._suggested = self._suggested, None
                return suggested
        return _Start(choice=self.best, price=self._price)

    def _walk(self, number: int, start: _Start, stop: Callable[[], bool]) -> tuple[Ints, int]:
        walker = walker_of(self.problem, start.choice, hash((self._seed, number)) % 2**63)
        hottest = HOTTEST[number // 2 % len(HOTTEST)] * float(walker.state.total[0])
        size = SIZES[number // 2 // len(HOTTEST) % len(SIZES)]
        num_trees = min(TREES_PER_GROUP * len(walker.movable), MOST_TREES)
        for step in range(NUM_STEPS):
            if stop():
                break
            progress = step / (NUM_STEPS - 1)
            share = min(1.0, (1 - progress) / (1 - PRICED))
            temperature = 0.0 if step == NUM_STEPS - 1 else hottest * COLDEST**progress
            walk(self.problem, walker, (start.price * share).astype(np.int64), size, num_trees, temperature)
        return walker.best, int(walker.best_total[0])

    def _offer(self, choice: Ints, price: Ints) -> bool:
        """Note a choice if it can be made legal, unless it is dear already."""
        if self.cost is not None and state_of(self.problem, choice).total[0] > WORTH_A_WALK * self.cost:
            return False
        legal = repaired(self.problem, choice)
        if legal is None:
            return False
        total = int(state_of(self.problem, legal).total[0])
        with self._lock:
            if self.cost is None or total < WORTH_A_WALK * self.cost:
                self._suggested = _Start(choice=legal, price=price)
                self._price = price
        self._keep(legal, total)
        return True

    def _keep(self, choice: Ints, total: int) -> None:
        with self._lock:
            if self.cost is not None and total >= self.cost:
                return
            self.best, self.cost = choice.copy(), total
        self._on_solution(self._contracted.expand(choice), total)
