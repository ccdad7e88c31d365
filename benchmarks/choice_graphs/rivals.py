"""Other methods on the same graphs: the weak program on HiGHS and on CBC, and a plain coordinate descent."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pulp

from stagecut.planner.choice_graphs.evaluation import evaluate
from stagecut.planner.choice_graphs.exact.integer_program import decode
from stagecut.planner.choice_graphs.exact.program import (
    Pairs,
    Rows,
    affordable,
    all_pairs,
    moment_rows,
    node_rows,
    stacked,
)
from stagecut.planner.choice_graphs.graph import IMPOSSIBLE, ChoiceGraph
from stagecut.planner.choice_graphs.moments import find_moments
from stagecut.planner.choice_graphs.solving.coordinate_descent import descend
from stagecut.planner.solvers.search.highs import LinearProgram, solve_integer

MOST_PAIRS = 400_000
"""Pairs of options for which the weak program is tried: it has a row for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a method found; None for no legal choice, or no bound."""

    cost: int | None
    bound: float | None
    seconds: float


def weak_program(graph: ChoiceGraph) -> LinearProgram:
    """As in Alpa, XLA and nnScaler: e_pq >= s_p + s_q - 1 for pairs that cost, s_p + s_q <= 1 for impossible ones."""
    options, possible = affordable(graph, all_pairs(graph), None)
    paying = possible.only(graph.pair_cost[possible.position] > 0)
    every = all_pairs(graph)
    excluded = every.only(graph.pair_cost[every.position] >= IMPOSSIBLE)
    rows = stacked(
        node_rows(graph),
        _both(paying, len(graph.cost) + np.arange(len(paying))),
        _both(excluded, None),
        moment_rows(graph, find_moments(graph)),
    )
    num_columns = len(graph.cost) + len(paying)
    return LinearProgram(
        cost=np.concatenate((np.where(options, graph.cost, 0), graph.pair_cost[paying.position])).astype(np.float64),
        lower=np.zeros(num_columns),
        upper=np.concatenate((options, np.ones(len(paying)))).astype(np.float64),
        row_lower=rows.lower,
        row_upper=rows.upper,
        entry_row=rows.row,
        entry_column=rows.column,
        entry_value=rows.value,
        num_integer=len(graph.cost),
    )


def _both(pairs: Pairs, columns: np.ndarray | None) -> Rows:
    """s_p + s_q - e <= 1 for every pair, with e in the columns given."""
    row, one = np.arange(len(pairs)), np.ones(len(pairs))
    parts = [(pairs.first, one), (pairs.second, one), *([] if columns is None else [(columns, -one)])]
    return Rows(
        row=np.concatenate([row] * len(parts)),
        column=np.concatenate([column for column, _ in parts]),
        value=np.concatenate([value for _, value in parts]),
        lower=np.full(len(pairs), -np.inf),
        upper=one,
    )


def weak_on_highs(graph: ChoiceGraph, time_limit_s: float) -> Found:
    """The weak program solved by HiGHS."""
    started = time.perf_counter()
    program = weak_program(graph)
    left_s = time_limit_s - (time.perf_counter() - started)
    answer = solve_integer(
        program,
        time_limit_s=left_s,
        stop=lambda: False,
        on_solution=lambda _columns: None,
        threads=2,
        seed=0,
        gap=0.0,
    )
    return _found(graph, answer.columns, answer.bound, started)


def weak_on_cbc(graph: ChoiceGraph, time_limit_s: float) -> Found:
    """The weak program solved by CBC, through PuLP."""
    started = time.perf_counter()
    program = weak_program(graph)
    model, columns = _pulp_model(program)
    left_s = max(1.0, time_limit_s - (time.perf_counter() - started))
    model.solve(pulp.PULP_CBC_CMD(msg=False, timeLimit=left_s, threads=2, gapRel=0.0))
    found = model.sol_status in (pulp.LpSolutionOptimal, pulp.LpSolutionIntegerFeasible)
    values = np.array([column.value() or 0.0 for column in columns]) if found else None
    proven = float(pulp.value(model.objective)) if model.sol_status == pulp.LpSolutionOptimal else None
    return _found(graph, values, proven, started)


def _pulp_model(program: LinearProgram) -> tuple[pulp.LpProblem, list[pulp.LpVariable]]:
    model = pulp.LpProblem("choices", pulp.LpMinimize)
    columns = [
        pulp.LpVariable(f"x{at}", low, high, pulp.LpInteger if at < program.num_integer else pulp.LpContinuous)
        for at, (low, high) in enumerate(zip(program.lower.tolist(), program.upper.tolist(), strict=True))
    ]
    model += pulp.LpAffineExpression(list(zip(columns, program.cost.tolist(), strict=True)))
    order = np.argsort(program.entry_row, kind="stable")
    first = np.searchsorted(program.entry_row[order], np.arange(len(program.row_lower) + 1)).tolist()
    entry_columns, entry_values = program.entry_column[order].tolist(), program.entry_value[order].tolist()
    for row, (low, high) in enumerate(zip(program.row_lower.tolist(), program.row_upper.tolist(), strict=True)):
        inside = slice(first[row], first[row + 1])
        names = [columns[at] for at in entry_columns[inside]]
        terms = pulp.LpAffineExpression(list(zip(names, entry_values[inside], strict=True)))
        model += (terms == high) if low == high else (terms <= high)
    return model, columns


def _found(graph: ChoiceGraph, columns: np.ndarray | None, bound: float | None, started: float) -> Found:
    evaluation = None if columns is None else evaluate(graph, decode(graph, columns))
    legal = evaluation is not None and not evaluation.faults
    return Found(
        cost=evaluation.cost if evaluation is not None and legal else None,
        bound=bound if bound is not None and np.isfinite(bound) else None,
        seconds=time.perf_counter() - started,
    )


def coordinate_descent(graph: ChoiceGraph, time_limit_s: float) -> Found:
    """Plain coordinate descent from the least usages."""
    started = time.perf_counter()
    choices = descend(graph, stop=lambda: time.perf_counter() - started > time_limit_s)
    cost = None if choices is None else evaluate(graph, choices).cost
    return Found(cost=cost, bound=None, seconds=time.perf_counter() - started)


def rivals_of(graph: ChoiceGraph) -> dict[str, Callable[[ChoiceGraph, float], Found]]:
    """The methods by name; the weak program only where it is not too large."""
    programs = {"weak program, HiGHS": weak_on_highs, "weak program, CBC": weak_on_cbc}
    return (programs if len(graph.pair_cost) <= MOST_PAIRS else {}) | {"coordinate descent": coordinate_descent}
