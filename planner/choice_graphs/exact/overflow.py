"""Why no choice is legal, and by how much the limit is missed at least."""

import math
from dataclasses import replace

import numpy as np

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.integer_program import ProgramLimits, decode
from stagecut.planner.choice_graphs.exact.program import affordable, all_pairs, row_scale, strong_program
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import Moments, find_moments
from stagecut.planner.core.numerics.arrays import Floats
from stagecut.planner.core.numerics.tolerances import MIP_BOUND
from stagecut.planner.solvers.search.highs import LinearProgram, SolveOutcome, solve_integer

MOST_PAIRS = 400_000
"""On larger graphs the program would take minutes and gigabytes."""
NO_PAIRS = "every choice contains an impossible option or pair, whatever the usage limit"


def why_illegal(graph: ChoiceGraph, limits: ProgramLimits) -> str:
    """One line about a graph without legal choices: the moment, and by how much its usage exceeds the limit at least.

    Exact where the least usages of the nodes alive exceed the limit already. Otherwise the least excess of any choice,
    from the strong program with a column for the excess, and that as its only cost.
    """
    moments = find_moments(graph)
    if moments.num_moments and moments.room.min() < 0:
        worst = int(np.argmin(moments.room))
        over = -int(moments.room[worst])
        return f"moment {moments.time[worst]}: even the least usages add up to {_over(graph, over)}"
    if len(graph.pair_cost) > MOST_PAIRS:
        return _of_groups(graph)
    free = replace(
        graph,
        cost=np.where(graph.cost < IMPOSSIBLE, 0, IMPOSSIBLE),
        pair_cost=np.where(graph.pair_cost < IMPOSSIBLE, 0, IMPOSSIBLE),
    )
    options, pairs = affordable(free, all_pairs(free), None)
    program, unit = _with_excess(graph, moments, strong_program(free, moments, options=options, pairs=pairs, scale=1.0))
    answer = solve_integer(
        program,
        time_limit_s=limits.seconds_left,
        stop=limits.stop,
        on_solution=lambda _columns: None,
        threads=limits.threads,
        seed=limits.seed,
        gap=0.0,
    )
    if answer.outcome is SolveOutcome.INFEASIBLE:
        return NO_PAIRS
    least = max(1, math.ceil(answer.bound * (1 - MIP_BOUND) * unit)) if math.isfinite(answer.bound) else 1
    if answer.columns is None:
        return f"every choice exceeds the limit of {graph.usage_limit} at some moment by at least {least}"
    found = evaluate(free, decode(graph, answer.columns))
    over = found.peak_usage - graph.usage_limit
    if answer.outcome is not SolveOutcome.OPTIMAL:
        return (
            f"moment {found.moment}: the best choice found uses {_over(graph, over)}; all exceed it by {least} or more"
        )
    return f"moment {found.moment}: even the choice that exceeds the limit least uses {_over(graph, over)}"


def _of_groups(graph: ChoiceGraph) -> str:
    """As much as contraction shows, on graphs too large for the program."""
    from stagecut.planner.choice_graphs.contraction.contract import contract
    from stagecut.planner.choice_graphs.contraction.pieces import usage_pieces

    contracted = contract(graph)
    if contracted is None:
        return NO_PAIRS
    pieces = usage_pieces(contracted)
    if pieces.room.min(initial=0) < 0:
        worst = int(np.argmin(pieces.room))
        over = _over(graph, -int(pieces.room[worst]))
        return f"moment {pieces.time[worst]}: even the least usages that pairs allow add up to {over}"
    return f"every choice exceeds the limit of {graph.usage_limit} at some moment"


def _over(graph: ChoiceGraph, over: int) -> str:
    return f"{graph.usage_limit + over}, {over} over the limit of {graph.usage_limit}"


def _with_excess(graph: ChoiceGraph, moments: Moments, program: LinearProgram) -> tuple[LinearProgram, float]:
    """A last column in every moment's row, to be minimised, in units of the largest coefficient of all rows."""
    scale = row_scale(graph, moments)
    unit = float(scale.max(initial=1.0))
    num_rows, num_columns = len(program.row_lower), len(program.cost)

    def more(values: Floats, last: float) -> Floats:
        return np.append(values, last)

    return replace(
        program,
        cost=more(program.cost, 1.0),
        lower=more(program.lower, 0.0),
        upper=more(program.upper, np.inf),
        entry_row=np.concatenate((program.entry_row, num_rows - len(scale) + np.arange(len(scale)))),
        entry_column=np.concatenate((program.entry_column, np.full(len(scale), num_columns))),
        entry_value=np.concatenate((program.entry_value, -unit / scale)),
    ), unit
