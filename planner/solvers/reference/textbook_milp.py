"""The textbook assignment formulation, solved by HiGHS or CBC through PuLP.

A deliberately independent formulation to check the others against, and the baseline for speed. It minimises
only the rows busy, fill and sync, with one program per variant; sets, variables and constraints are in
:mod:`stagecut.planner.solvers.reference.textbook_model`. The best plan of each variant is simulated.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import pulp

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.numerics.tolerances import FEASIBILITY
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem, Variant
from stagecut.planner.core.result import Result
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.arrangement import PlacedStage, assemble
from stagecut.planner.network.rows import SHARED_FAMILIES
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.reference.textbook_model import TextbookModel
from stagecut.planner.solvers.search.highs import LONGEST_S, SolveOutcome
from stagecut.planner.solvers.search.pulp_highs import highs
from stagecut.planner.solvers.search.search import Search


class ProgramAnswer(NamedTuple):
    """The outcome of solving the program of one variant."""

    proven: bool
    """Whether the plan is the best one, or there is none."""
    plan: Plan | None
    value_s: float
    """Largest row of the plan; infinite without one."""
    bound_s: float
    """Lower bound on the rows of all plans of the variant: 0 if nothing is proven, infinite if there is no plan."""


Engine = Callable[[TextbookModel, Search, float], tuple[SolveOutcome, float]]
"""Solves a program within that many seconds; returns the outcome and the dual bound in the program's unit."""


def solve(problem: Problem, search: Search) -> Result:
    """Least shared rows over all plans, by HiGHS.

    Raises
    ------
    UnsupportedError
        If the job allows interleaved plans or slicing, or the cluster has measured tables.
    """
    return _solve_variants(problem, search, name="textbook-milp", engine=_run_highs)


def solve_with_cbc(problem: Problem, search: Search) -> Result:
    """Least shared rows over all plans, by CBC, which only the time limit can stop.

    Raises
    ------
    UnsupportedError
        If the job allows interleaved plans or slicing, the cluster has measured tables, or CBC is not available.
    """
    return _solve_variants(problem, search, name="textbook-milp-cbc", engine=_run_cbc)


def _solve_variants(problem: Problem, search: Search, *, name: str, engine: Engine) -> Result:
    if Schedule.INTERLEAVED in problem.job.schedules:
        raise UnsupportedError(
            f"solver {name!r}: does not support schedule {Schedule.INTERLEAVED}, since its program gives every stage "
            f"devices of its own; leave that schedule out"
        )
    if problem.job.slice != 0:
        raise UnsupportedError(
            f"solver {name!r}: does not support halved micro-batches; leave slicing out, or use 'milp'"
        )
    if problem.cluster.has_tables:
        raise UnsupportedError(
            f"solver {name!r}: supports only links with one latency and one bandwidth, but cluster "
            f"{problem.cluster.name!r} has measured tables; leave these out, or use 'milp'"
        )
    best_s, bound_s, proven = math.inf, math.inf, True
    for number, variant in enumerate(problem.variants):
        if search.out_of_budget:
            bound_s, proven = 0.0, False
            break
        seconds = search.seconds_left / (len(problem.variants) - number)
        answer = _solve_variant(search, variant, engine=engine, seconds=seconds)
        best_s, bound_s = min(best_s, answer.value_s), min(bound_s, answer.bound_s)
        proven &= answer.proven
        if answer.plan is not None:
            search.offer([answer.plan])
    if proven and math.isfinite(best_s):
        bound_s = best_s
    if math.isfinite(bound_s):
        search.raise_bound(bound_s)
    row_bound_s = best_s if proven and math.isfinite(best_s) else None
    return search.result(name, proves=True, exhausted=proven and math.isinf(best_s), row_bound_s=row_bound_s)


def _solve_variant(search: Search, variant: Variant, *, engine: Engine, seconds: float) -> ProgramAnswer:
    model = TextbookModel(search.costs.of(variant.share), variant)
    outcome, dual_bound = engine(model, search, min(seconds, search.seconds_left))
    search.count("programs solved")
    if outcome is SolveOutcome.INFEASIBLE:
        return ProgramAnswer(True, None, math.inf, math.inf)
    plan = _decode(model)
    value_s = math.inf if plan is None else lower_bound(search.costs.plan(plan), SHARED_FAMILIES)
    proven = plan is not None and outcome is SolveOutcome.OPTIMAL
    return ProgramAnswer(proven, plan, value_s, value_s if proven else dual_bound * model.scale_s)


def _run_highs(model: TextbookModel, search: Search, seconds: float) -> tuple[SolveOutcome, float]:
    """Solve by HiGHS, whose versions 1.11 to 1.15 fail on about one in 1,000 small programs.

    With presolve they call a worse plan optimal, so it is off. They call some infeasible programs
    optimal, with an infinite bound and a fractional solution. And they end with an error if their
    solution violates a row by more than their own tolerance; only then presolve is tried.
    """
    until = search.seconds + seconds
    outcome, bound = SolveOutcome.STOPPED, 0.0
    for presolve in ("off", "choose"):
        model.program.solve(highs(search, until - search.seconds, presolve=presolve))
        bound = max(bound, float(model.program.solverModel.getInfo().mip_dual_bound))
        outcome = SolveOutcome.INFEASIBLE if bound == math.inf else _outcome(model)
        failed = model.program.sol_status == pulp.LpSolutionNoSolutionFound
        if not failed or search.cancelled or search.seconds >= until:
            break
    return outcome, bound


def _run_cbc(model: TextbookModel, search: Search, seconds: float) -> tuple[SolveOutcome, float]:
    """Solve by CBC, which reports no dual bound through PuLP: unless it finishes, it proves nothing."""
    solver = pulp.COIN_CMD(
        path=pulp.PULP_CBC_CMD.pulp_cbc_path,
        msg=False,
        timeLimit=min(seconds, LONGEST_S),
        gapRel=0.0,
        gapAbs=0.0,
        threads=search.options.threads,
        options=[f"{name} {FEASIBILITY}" for name in ("primalTolerance", "dualTolerance", "integerTolerance")]
        + [f"increment {FEASIBILITY}", f"randomCbcSeed {search.options.seed}"],
    )
    if not solver.available():
        raise UnsupportedError("solver 'textbook-milp-cbc': PuLP has no CBC for this platform; use 'textbook-milp'")
    model.program.solve(solver)
    return _outcome(model), 0.0


def _outcome(model: TextbookModel) -> SolveOutcome:
    if model.program.status == pulp.LpStatusInfeasible:
        return SolveOutcome.INFEASIBLE
    return SolveOutcome.OPTIMAL if model.program.sol_status == pulp.LpSolutionOptimal else SolveOutcome.STOPPED


def _decode(model: TextbookModel) -> Plan | None:
    """The plan of the solution; None if the solver left none, or one that only fits within its tolerance."""
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
    arrangement = tuple(
        PlacedStage(
            stop=stop_of[position],
            placement=option_of[position].placement,
            opens=before is None or option_of[position].pool[:2] != option_of[before].pool[:2],
        )
        for before, position in zip([None, *positions], positions, strict=False)
    )
    return assemble(model.costs, model.variant, arrangement) if arrangement[-1].stop == model.num_layers else None


def _is_one(choice: pulp.LpVariable) -> bool:
    return choice.varValue is not None and choice.varValue > 0.5
