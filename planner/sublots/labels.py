"""The sizes of least makespan, by labels: exact, or with a proven bound when there would be too many.

A label is what a partial choice leaves behind: for every line of processes the staircase of completion times
so far. The recursion is monotone, so a label that is nowhere later than another one makes it superfluous. A
label is also dropped if what least remains behind it leads past the limit: the best makespan known, less the
gap allowed.

Lines advance side by side in *moves*, each of which chooses sizes for the next process of one line, or of
several at once where only some combinations are allowed. The objective is the sum of the makespans: under a
flush the forwards of an iteration and, seen backwards in time, its backwards.
"""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.numerics.arrays import Floats, Ints
from stagecut.planner.core.numerics.tolerances import LABEL_SUM
from stagecut.planner.core.sublot_sizes import is_union
from stagecut.planner.sublots.process_chain import ProcessChain
from stagecut.planner.sublots.staircases import arrivals, completions, least_remaining, makespan_s, remaining

MAX_LABELS = 4_000
"""Labels kept behind a move by default. Of 30 random chains of 31 processes with 9 sizes none needed more than 43; of
30 chains of 15 processes with 64 sizes none more than 527."""

PROBES = 16
"""Columns of labels that are compared first."""

Sizes = tuple[tuple[int, ...], ...]
"""The sublot size of every process, line by line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """Sizes for the next process of each of the lines named."""

    lines: tuple[int, ...]
    options: tuple[tuple[int, ...], ...]
    """Combinations allowed, a size for each of the lines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SublotChoice:
    """Sizes, what they take, and what any sizes take at least."""

    sizes: Sizes
    makespan_s: float
    """Sum over the lines."""
    bound_s: float
    num_labels: int = 0
    """Labels kept, over all moves."""


@dataclass(kw_only=True, eq=False)
class SublotProblem:
    """Lines of processes and the moves that choose their sizes."""

    lines: tuple[ProcessChain, ...]
    moves: tuple[Move, ...]
    least: list[list[Floats]] = field(init=False)
    """For each line, see :func:`least_remaining`."""

    def __post_init__(self) -> None:
        self.least = [least_remaining(chain) for chain in self.lines]

    @classmethod
    def apart(cls, chain: ProcessChain) -> "SublotProblem":
        """One line, the size of every process free."""
        moves = (Move(lines=(0,), options=tuple((size,) for size in process.sizes)) for process in chain.processes)
        return cls(lines=(chain,), moves=tuple(moves))

    @classmethod
    def coupled(
        cls, forward: ProcessChain, backward: ProcessChain, computations: Container[int], *, alike: bool = False
    ) -> "SublotProblem":
        """Forwards, and backwards seen backwards in time, process by process in the same order.

        At the processes named, computations of stages, every sublot of the backward is a union of sublots of the
        forward: only then can its gradients be computed from what these forwards have kept. `alike`: it is one.

        Raises
        ------
        BadInputError
            If no two sizes of such a process go together.
        """
        moves: list[Move] = []
        for index, (there, back) in enumerate(zip(forward.processes, backward.processes, strict=True)):
            if index in computations:
                pairs = [pair for pair in product(there.sizes, back.sizes) if not alike or pair[0] == pair[1]]
                unions = [pair for pair in pairs if is_union(forward.num_samples, *pair)]
                rule = "such that some backward is a union of its forwards"
                require(len(unions) > 0, back.name, "sizes", rule, (there.sizes, back.sizes))
                moves.append(Move(lines=(0, 1), options=tuple(unions)))
            else:
                moves.append(Move(lines=(0,), options=tuple((size,) for size in there.sizes)))
                moves.append(Move(lines=(1,), options=tuple((size,) for size in back.sizes)))
        return cls(lines=(forward, backward), moves=tuple(moves))

    def value_s(self, sizes: Sizes) -> float:
        """Sum of the makespans of all lines."""
        return sum(makespan_s(chain, of_line) for chain, of_line in zip(self.lines, sizes, strict=True))

    def sizes_of(self, choices: Sequence[tuple[int, ...]]) -> Sizes:
        """Sizes by line, from one option per move."""
        sizes: list[list[int]] = [[] for _ in self.lines]
        for move, option in zip(self.moves, choices, strict=True):
            for line, size in zip(move.lines, option, strict=True):
                sizes[line].append(size)
        return tuple(tuple(of_line) for of_line in sizes)

    def left_s(self, line: int, passed: int, staircases: Floats) -> Floats:
        """Least makespan of a line behind so many of its processes, for each label, shape (labels,)."""
        chain, least = self.lines[line], self.least[line]
        released = [process.release_s + way[0] for process, way in zip(chain.processes, least[:-1], strict=True)]
        floor_s = max(released[passed:], default=0.0)
        ends_s: Floats = np.maximum((staircases + least[passed]).max(axis=1), floor_s)
        return ends_s


def near_equal(problem: SublotProblem) -> list[tuple[int, ...]]:
    """The best choice in which every move takes the option nearest to one common size."""
    common = sorted({size for move in problem.moves for option in move.options for size in option})

    def nearest(move: Move, size: int) -> tuple[int, ...]:
        return min(move.options, key=lambda option: (sum(abs(np.log(each / size)) for each in option), option))

    choices = [[nearest(move, size) for move in problem.moves] for size in common]
    return min(choices, key=lambda each: (problem.value_s(problem.sizes_of(each)), each))


def descend(problem: SublotProblem, choices: list[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """Change one move after the other, front to back, as long as that shortens the sum of the makespans."""
    best_s = problem.value_s(problem.sizes_of(choices))
    while True:
        choices = _swept(problem, choices)
        value_s = problem.value_s(problem.sizes_of(choices))
        if value_s >= best_s * (1 - LABEL_SUM):
            return choices
        best_s = value_s


def _swept(problem: SublotProblem, choices: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    """The best option of each move, given those of the moves before it as they are now and of those behind it."""
    sizes = problem.sizes_of(choices)
    ways = [_ways(chain, of_line) for chain, of_line in zip(problem.lines, sizes, strict=True)]
    staircases, passed = [arrivals(chain) for chain in problem.lines], [0] * len(problem.lines)
    swept = []
    for move, current in zip(problem.moves, choices, strict=True):
        after = {
            (line, size): completions(problem.lines[line], passed[line], size, staircases[line])
            for place, line in enumerate(move.lines)
            for size in {option[place] for option in move.options}
        }
        ends_s = {
            key: float((staircase[0] + ways[key[0]][passed[key[0]] + 1]).max()) for key, staircase in after.items()
        }
        option = min(
            move.options,
            key=lambda each: (sum(ends_s[key] for key in zip(move.lines, each, strict=True)), each != current),
        )
        for line, size in zip(move.lines, option, strict=True):
            staircases[line], passed[line] = after[line, size], passed[line] + 1
        swept.append(option)
    return swept


def _ways(chain: ProcessChain, sizes: Sequence[int]) -> list[Floats]:
    """For every process, and behind the last one, the longest way to the end with these sizes."""
    ways = [np.zeros(chain.num_samples)]
    for index in reversed(range(len(sizes))):
        ways.append(remaining(chain, index, sizes[index], ways[-1]))
    return ways[::-1]


def solve_sublots(
    problem: SublotProblem,
    *,
    gap: float = 0.0,
    max_labels: int = MAX_LABELS,
    stop: Callable[[], bool] = lambda: False,
) -> SublotChoice:
    """Sizes of least total makespan, and a proven bound.

    Parameters
    ----------
    gap
        Labels that cannot beat the best choice by more than this part of it are dropped.
    max_labels
        Most labels kept behind a move; if there are more, those with the least bounds.
    stop
        Asked before every move; once true, the best choice so far is returned with the bound known by then.
    """
    choices = descend(problem, near_equal(problem))
    best_s = problem.value_s(problem.sizes_of(choices))
    limit_s = best_s * (1 - max(gap, LABEL_SUM))
    dropped_s, num_labels = limit_s, 0
    labels = [arrivals(chain) for chain in problem.lines]
    passed, history = [0] * len(problem.lines), []
    for move in problem.moves:
        if stop():
            unfinished_s = _bounds_s(problem, labels, passed).min(initial=dropped_s)
            return SublotChoice(
                sizes=problem.sizes_of(choices), makespan_s=best_s, bound_s=float(unfinished_s), num_labels=num_labels
            )
        labels, parents, options, bounds_s = _extended(problem, move, labels, passed, limit_s)
        kept = undominated(np.concatenate(labels, axis=1), bounds_s, max_labels + 1)
        if len(kept) > max_labels:
            dropped_s, kept = min(dropped_s, float(bounds_s[kept[-1]])), kept[:-1]
        labels = [of_line[kept] for of_line in labels]
        history.append((parents[kept], options[kept]))
        num_labels += len(kept)
        if len(kept) == 0:
            break
    else:
        ends_s = np.sum([of_line[:, -1] for of_line in labels], axis=0)
        choices = _traced(problem, history, int(ends_s.argmin()))
        best_s = min(best_s, problem.value_s(problem.sizes_of(choices)))
        dropped_s = min(dropped_s, best_s * (1 - LABEL_SUM))
    return SublotChoice(sizes=problem.sizes_of(choices), makespan_s=best_s, bound_s=dropped_s, num_labels=num_labels)


def _extended(
    problem: SublotProblem, move: Move, labels: list[Floats], passed: list[int], limit_s: float
) -> tuple[list[Floats], Ints, Ints, Floats]:
    """Labels behind a move that stay below the limit: staircases by line, label before, option, bound.

    Advances `passed`.
    """
    after = {
        (line, size): completions(problem.lines[line], passed[line], size, labels[line])
        for place, line in enumerate(move.lines)
        for size in {option[place] for option in move.options}
    }
    for line in move.lines:
        passed[line] += 1
    left_s = {key: problem.left_s(key[0], passed[key[0]], staircases) for key, staircases in after.items()}
    rest_s = sum(
        (problem.left_s(line, passed[line], labels[line]) for line in range(len(labels)) if line not in move.lines),
        start=np.zeros(len(labels[0])),
    )
    parents, bounds = [], []
    for option in move.options:
        bound_s = rest_s + sum(left_s[key] for key in zip(move.lines, option, strict=True))
        parents.append(np.flatnonzero(bound_s < limit_s))
        bounds.append(bound_s[parents[-1]])
    extended = []
    for line, before in enumerate(labels):
        place = move.lines.index(line) if line in move.lines else None
        tables = [before if place is None else after[line, option[place]] for option in move.options]
        extended.append(np.concatenate([table[rows] for table, rows in zip(tables, parents, strict=True)]))
    options = np.repeat(np.arange(len(move.options)), [len(rows) for rows in parents])
    return extended, np.concatenate(parents), options, np.concatenate(bounds)


def _bounds_s(problem: SublotProblem, labels: list[Floats], passed: list[int]) -> Floats:
    lefts = [problem.left_s(line, passed[line], staircases) for line, staircases in enumerate(labels)]
    total_s: Floats = np.sum(lefts, axis=0)
    return total_s


def undominated(labels: Floats, bounds_s: Floats, most: int) -> Ints:
    """Indices of labels, of shape (n, columns), that no other one is at most equal to everywhere, by rising bound.

    Ends at `most` of them. Of equal labels one is kept.
    """
    order = np.lexsort((labels.sum(axis=1), bounds_s))
    probed = np.ascontiguousarray(labels[:, :: max(1, labels.shape[1] // PROBES)].T)
    kept_probes = np.empty((len(probed), min(most, len(order))))
    found = np.empty(kept_probes.shape[1], dtype=np.int64)
    count = 0
    for index in order.tolist():
        if count == most:
            break
        # A few columns settle most comparisons, and all of them only those that are left.
        maybe = found[:count][(kept_probes[:, :count] <= probed[:, index, None]).all(axis=0)]
        if not (labels[maybe] <= labels[index]).all(axis=1).any():
            kept_probes[:, count] = probed[:, index]
            found[count] = index
            count += 1
    return found[:count]


def _traced(problem: SublotProblem, history: Sequence[tuple[Ints, Ints]], label: int) -> list[tuple[int, ...]]:
    """The options that led to a label behind the last move."""
    choices = []
    for move, (parents, options) in zip(reversed(problem.moves), reversed(history), strict=True):
        choices.append(move.options[options[label]])
        label = int(parents[label])
    return choices[::-1]
