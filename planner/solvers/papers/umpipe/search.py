"""One function for all searches of the paper, which answers as the exact labels do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log

from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.solvers.papers.umpipe.dual_genetic import dual_genetic
from stagecut.planner.solvers.papers.umpipe.equal_sizes import equal_sizes
from stagecut.planner.solvers.papers.umpipe.found import Found, Lines, joined
from stagecut.planner.solvers.papers.umpipe.genetic import genetic
from stagecut.planner.solvers.papers.umpipe.global_greedy import global_greedy
from stagecut.planner.solvers.papers.umpipe.local_greedy import local_greedy
from stagecut.planner.solvers.papers.umpipe.matrix_genetic import matrix_genetic
from stagecut.planner.solvers.papers.umpipe.operators import Breeding
from stagecut.planner.sublots.labels import Move, Sizes, SublotProblem
from stagecut.planner.sublots.process_chain import ProcessChain

METHODS: Mapping[str, Callable[[Lines, int, Breeding], Found]] = {
    "equal-sizes": lambda lines, _seed, _breeding: equal_sizes(lines),
    "local-greedy": lambda lines, _seed, _breeding: joined(map(local_greedy, lines)),
    "global-greedy": lambda lines, _seed, _breeding: joined(map(global_greedy, lines)),
    "genetic": lambda lines, seed, breeding: genetic(lines, seed=seed, breeding=breeding),
    "dual-genetic": lambda lines, seed, breeding: dual_genetic(lines, seed=seed, breeding=breeding),
    "matrix-genetic": lambda lines, seed, breeding: matrix_genetic(lines, seed=seed, breeding=breeding),
}
"""GPipe's equal sizes, the two greedy searches, the genetic one, DGAP and TiDGAP."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchedSublots:
    """Sizes that a search found; it proves nothing about them."""

    sizes: Sizes
    makespan_s: float
    """Sum over the lines."""
    num_evaluations: int
    """How often the sublots of one process were timed."""


def search(problem: SublotProblem, method: str, *, seed: int = 0, breeding: Breeding | None = None) -> SearchedSublots:
    """Sizes by one of the paper's searches, the same ones for the same seed.

    The searches choose freely for each process, line by line in the order of time; lines that the problem sees
    backwards are turned round for them. Where a problem allows only some combinations, as the executor needs it, each
    is replaced by the nearest one allowed.

    Parameters
    ----------
    method
        One of `METHODS`.
    seed
        Of the genetic searches.

    Raises
    ------
    BadInputError
        If there is no such method, or a line seen backwards has release times.
    """
    if method not in METHODS:
        raise BadInputError(f"sublots: no search {method!r} (searches: {', '.join(METHODS)})")
    backwards = [line.partial_first for line in problem.lines]
    in_time = tuple(line.reversed() if line.partial_first else line for line in problem.lines)
    found = METHODS[method](in_time, seed, breeding or Breeding())
    turned = tuple(sizes[::-1] if back else sizes for sizes, back in zip(found.sizes, backwards, strict=True))
    sizes = nearest_allowed(problem, turned)
    return SearchedSublots(sizes=sizes, makespan_s=problem.value_s(sizes), num_evaluations=found.num_evaluations)


def nearest_allowed(problem: SublotProblem, sizes: Sizes) -> Sizes:
    """For every move the option that is the least factors away; of several the one with the smallest sizes."""
    left = [iter(of_line) for of_line in sizes]
    choices = []
    for move in problem.moves:
        wanted = [next(left[line]) for line in move.lines]
        choices.append(
            min(
                move.options,
                key=lambda option: (sum(abs(log(a / b)) for a, b in zip(option, wanted, strict=True)), option),
            )
        )
    return problem.sizes_of(choices)


def one_after_another(*lines: ProcessChain) -> SublotProblem:
    """Lines whose times add up, the size of every process free: forwards and backwards under a flush."""
    moves = (
        Move(lines=(index,), options=tuple((size,) for size in process.sizes))
        for index, line in enumerate(lines)
        for process in line.processes
    )
    return SublotProblem(lines=lines, moves=tuple(moves))
