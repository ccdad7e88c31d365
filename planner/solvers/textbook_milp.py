"""The textbook assignment formulation, solved by HiGHS or CBC through PuLP.

An independent formulation to check the others against, and the baseline for speed. It minimises
the rows busy, fill and sync only, one program per variant; sets, variables and constraints are
stated in :mod:`planner.solvers.textbook_model`. The best plan of each variant is simulated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pulp

from planner.core.errors import UnsupportedError
from planner.core.plan import Plan
from planner.core.problem import Problem, Variant
from planner.core.result import Result
from planner.network.layout import Block, assemble
from planner.network.rows import SHARED_FAMILIES
from planner.simulator.bounds import lower_bound
from planner.solvers.search import Search
from planner.solvers.textbook_model import TextbookModel

TOLERANCE = 1e-9
"""Of linear programs. HiGHS 1.15 loses optima with an integrality tolerance as tight (it keeps its 1e-6)."""
CUTOFF_MARGIN = 1e-7
"""Relative; a variant worse than the best one by more than this need not be solved."""
LONGEST_S = 1e7
"""What "no time limit" is for a solver."""


class Outcome(Enum):
    """How a solve ended."""

    OPTIMAL = "optimal"
    WORSE = "worse"
    """Infeasible: there is nothing below the cutoff, or nothing at all."""
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What one solve of one program gave."""

    outcome: Outcome
    plan: Plan | None
    value_s: float
    """Rows of the plan; infinite without one."""
    bound_s: float
    """No plan of the variant has smaller rows; 0 where the solver proved nothing."""


Engine = Callable[[TextbookModel, Search, float], tuple[Outcome, float]]
"""Solves a program within so many seconds; returns how that ended, and the dual bound in the program's unit."""


def solve(problem: Problem, search: Search) -> Result:
    """Least shared rows over all plans, by HiGHS."""
    return _solve_variants(problem, search, name="textbook-milp", engine=_run_highs)


def solve_with_cbc(problem: Problem, search: Search) -> Result:
    """Least shared rows over all plans, by CBC, which can be stopped by the time limit only.

    Raises
    ------
    UnsupportedError
        If there is no CBC for this platform.
    """
    return _solve_variants(problem, search, name="textbook-milp-cbc", engine=_run_cbc)


def _solve_variants(problem: Problem, search: Search, *, name: str, engine: Engine) -> Result:
    best_s, bound_s, proven = math.inf, math.inf, True
    for number, variant in enumerate(problem.variants):
        if search.out_of_budget:
            bound_s, proven = 0.0, False
            break
        seconds = search.seconds_left / (len(problem.variants) - number)
        answer = _solve_variant(search, variant, engine=engine, cutoff_s=best_s, seconds=seconds)
        best_s, bound_s = min(best_s, answer.value_s), min(bound_s, answer.bound_s)
        proven &= answer.outcome is not Outcome.STOPPED
        if answer.plan is not None:
            search.offer([answer.plan])
    if proven and math.isfinite(best_s):
        bound_s = best_s
    if math.isfinite(bound_s):
        search.raise_bound(bound_s)
    row_bound_s = best_s if proven and math.isfinite(best_s) else None
    return search.result(name, proves=True, exhausted=proven and math.isinf(best_s), row_bound_s=row_bound_s)


def _solve_variant(search: Search, variant: Variant, *, engine: Engine, cutoff_s: float, seconds: float) -> Answer:
    model = TextbookModel(search.costs, variant)
    if math.isfinite(cutoff_s):
        model.program += model.time <= cutoff_s / model.scale_s * (1 + CUTOFF_MARGIN)
    outcome, dual_bound = engine(model, search, min(seconds, search.seconds_left))
    search.count("programs solved")
    if outcome is Outcome.WORSE:
        return Answer(outcome=outcome, plan=None, value_s=math.inf, bound_s=cutoff_s)
    plan = _decode(model)
    if plan is None:
        return Answer(outcome=Outcome.STOPPED, plan=None, value_s=math.inf, bound_s=dual_bound * model.scale_s)
    value_s = lower_bound(search.costs.plan(plan), SHARED_FAMILIES)
    bound_s = value_s if outcome is Outcome.OPTIMAL else dual_bound * model.scale_s
    return Answer(outcome=outcome, plan=plan, value_s=value_s, bound_s=bound_s)


def _run_highs(model: TextbookModel, search: Search, seconds: float) -> tuple[Outcome, float]:
    def stop_if_cancelled(kind: object, message: str, data_out: object, data_in: Any, owner: object) -> None:
        data_in.user_interrupt = search.cancelled

    solver = pulp.HiGHS(
        # Callbacks never fire while the output is off.
        msg=True,
        log_to_console=False,
        callbackTuple=(stop_if_cancelled, None),
        callbacksToActivate=[pulp.HiGHS.hscb.HighsCallbackType.kCallbackMipInterrupt],
        timeLimit=min(seconds, LONGEST_S),
        gapRel=0.0,
        gapAbs=0.0,
        threads=search.options.threads,
        random_seed=search.options.seed,
        primal_feasibility_tolerance=TOLERANCE,
        dual_feasibility_tolerance=TOLERANCE,
    )
    model.program.solve(solver)
    bound = float(model.program.solverModel.getInfo().mip_dual_bound)
    # HiGHS 1.15 calls some infeasible programs optimal, with an infinite bound and a fractional solution.
    return (Outcome.WORSE if bound == math.inf else _outcome(model), max(0.0, bound))


def _run_cbc(model: TextbookModel, search: Search, seconds: float) -> tuple[Outcome, float]:
    """CBC tells no dual bound through PuLP: what it has not finished proves nothing."""
    solver = pulp.COIN_CMD(
        path=pulp.PULP_CBC_CMD.pulp_cbc_path,
        msg=False,
        timeLimit=min(seconds, LONGEST_S),
        gapRel=0.0,
        gapAbs=0.0,
        threads=search.options.threads,
        options=[f"{name} {TOLERANCE}" for name in ("primalTolerance", "dualTolerance", "integerTolerance")]
        + [f"increment {TOLERANCE}", f"randomCbcSeed {search.options.seed}"],
    )
    if not solver.available():
        raise UnsupportedError("solver 'textbook-milp-cbc': PuLP has no CBC for this platform; use 'textbook-milp'")
    model.program.solve(solver)
    return _outcome(model), 0.0


def _outcome(model: TextbookModel) -> Outcome:
    if model.program.status == pulp.LpStatusInfeasible:
        return Outcome.WORSE
    return Outcome.OPTIMAL if model.program.sol_status == pulp.LpSolutionOptimal else Outcome.STOPPED


def _decode(model: TextbookModel) -> Plan | None:
    """The plan of the solution; None if the solver left none, or one that fits only within its tolerance."""
    stop_of: dict[int, int] = {}
    for (layer, position), choice in model.layer_at.items():
        if _is_one(choice):
            stop_of[position] = max(stop_of.get(position, 0), layer + 1)
    option_of = {
        position: model.options[index] for (position, index), choice in model.option_at.items() if _is_one(choice)
    }
    if not stop_of or sorted(stop_of) != sorted(option_of):
        return None
    positions = sorted(stop_of, reverse=True)
    layout = tuple(
        Block(
            stop=stop_of[position],
            placement=option_of[position].placement,
            opens=before is None or not option_of[position].shares_host(option_of[before]),
        )
        for before, position in zip([None, *positions], positions, strict=False)
    )
    return assemble(model.costs, model.variant, layout) if layout[-1].stop == model.num_layers else None


def _is_one(choice: pulp.LpVariable) -> bool:
    return choice.varValue is not None and choice.varValue > 0.5
