"""The best plan and the best bound ever found for each instance: `instances/best_known.json`, which only improves.

Every entry has a plan file beside it, which `plan check` takes. An entry whose inputs, costs or simulated
time are no longer those of today is no best known plan of today's problem, and is replaced as a whole.
"""

import json
import math
import re
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.harness.measuring import Measured
from benchmarks.problems.specs import Spec
from stagecut.planner.analysis.prediction import play, predict
from stagecut.planner.core.numerics.tolerances import EQUAL_TIMES
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.result import Status, relative_gap
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.io.documents.canonical import format_json
from stagecut.planner.io.documents.write import write_bytes
from stagecut.planner.io.files.plan_file import (
    PlanFile,
    input_hashes,
    installed_versions,
    provenance_of,
    read_plan_file,
    to_tree,
)
from stagecut.planner.io.files.plan_statements import Certificate
from stagecut.planner.solvers.search.options import SolveOptions

FOLDER = Path(__file__).parents[1] / "instances"
SAME = 1e-12
"""Relative difference below which simulated times count as equal: rounding."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BestKnown:
    """The best known plan and bound of one instance."""

    objective_s: float
    """Simulated iteration time of the plan."""
    solver: str
    """The solver that found the plan."""
    bound_s: float | None
    bound_solver: str | None
    """The solver that proved the bound."""
    plan: str
    """Name of the plan file."""
    versions: dict[str, str]
    """Versions of the software that found the plan."""

    @property
    def gap(self) -> float | None:
        """Relative gap between the best plan and the best bound."""
        return relative_gap(self.objective_s, self.bound_s)


def read_entries(*, folder: Path = FOLDER) -> dict[str, BestKnown]:
    """All entries, by instance name."""
    path = folder / "best_known.json"
    if not path.exists():
        return {}
    trees: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return {
        name: BestKnown(**{key: value for key, value in tree.items() if key != "gap"}) for name, tree in trees.items()
    }


def replay(spec: Spec, entry: BestKnown, *, folder: Path = FOLDER) -> tuple[str, ...]:
    """Everything that is wrong with an entry; nothing if it holds.

    The plan is simulated again, its inputs are compared with those of the instance.
    """
    problem, stated = spec.problem(), read_plan_file(folder / entry.plan)
    found = list(faults(CostModel(problem), stated.plan))
    if dict(stated.provenance.input_hashes) != input_hashes(problem):
        found.append(f"{entry.plan}: not made for the inputs of this instance")
    iteration_s = play(problem, stated.plan).timeline.iteration_s
    if not math.isclose(iteration_s, entry.objective_s, rel_tol=SAME):
        found.append(f"{entry.plan}: takes {iteration_s!r} s, not {entry.objective_s!r} s")
    if entry.bound_s is not None and entry.bound_s > entry.objective_s * (1 + SAME):
        found.append(f"{entry.plan}: the bound {entry.bound_s!r} s is above the time of the plan")
    return tuple(found)


def improve(spec: Spec, answers: dict[str, Measured], *, folder: Path = FOLDER) -> bool:
    """Replace whatever is improved upon in the entry of an instance; return whether anything was."""
    folder.mkdir(parents=True, exist_ok=True)
    entries = read_entries(folder=folder)
    old = entries.get(spec.name)
    if old is not None and replay(spec, old, folder=folder):
        old = None
    plan, new = _better_plan(old, _plans(answers), spec)
    if new is None:
        return False
    new = _better_bound(new, _bounds(answers))
    if new == old:
        return False
    if plan is None:
        plan = read_plan_file(folder / new.plan).plan
    write_bytes(folder / new.plan, format_json(to_tree(_plan_file(spec, plan, new))).encode(), force=True)
    entries[spec.name] = new
    trees = {name: {**asdict(entry), "gap": entry.gap} for name, entry in entries.items()}
    write_bytes(folder / "best_known.json", format_json(trees).encode(), force=True)
    return True


def plan_file_name(spec: Spec) -> str:
    """The instance's name in lower-case letters, digits and hyphens."""
    return re.sub(r"[^a-z0-9.]+", "-", spec.name.lower()) + ".plan.json"


def _plans(answers: dict[str, Measured]) -> Iterable[tuple[float, str, Plan]]:
    for solver, found in answers.items():
        if found.plan is not None and found.answer.objective_s is not None:
            yield found.answer.objective_s, solver, found.plan


def _bounds(answers: dict[str, Measured]) -> Iterable[tuple[float, str]]:
    for solver, found in answers.items():
        if found.answer.bound_s is not None:
            yield found.answer.bound_s, solver


def _better_plan(
    old: BestKnown | None, plans: Iterable[tuple[float, str, Plan]], spec: Spec
) -> tuple[Plan | None, BestKnown | None]:
    """The plan that improves on the entry's, if there is one, and the updated entry."""
    best = min(plans, key=lambda found: found[0], default=None)
    if best is None or (old is not None and best[0] >= old.objective_s * (1 - EQUAL_TIMES)):
        return None, old
    objective_s, solver, plan = best
    entry = BestKnown(
        objective_s=objective_s,
        solver=solver,
        bound_s=None if old is None else old.bound_s,
        bound_solver=None if old is None else old.bound_solver,
        plan=plan_file_name(spec),
        versions=installed_versions(),
    )
    return plan, entry


def _better_bound(entry: BestKnown, bounds: Iterable[tuple[float, str]]) -> BestKnown:
    """The entry with the largest bound; a bound above the plan's time is wrong and left out."""
    possible = (found for found in bounds if found[0] <= entry.objective_s * (1 + EQUAL_TIMES))
    bound_s, solver = max(possible, key=lambda found: found[0], default=(None, None))
    if bound_s is None or (entry.bound_s is not None and bound_s <= entry.bound_s * (1 + EQUAL_TIMES)):
        return entry
    return replace(entry, bound_s=min(bound_s, entry.objective_s), bound_solver=solver)


def _plan_file(spec: Spec, plan: Plan, entry: BestKnown) -> PlanFile:
    problem, gap = spec.problem(), entry.gap
    proven = gap is not None and gap <= SolveOptions().gap + EQUAL_TIMES
    return PlanFile(
        problem=problem,
        plan=plan,
        predicted=predict(play(problem, plan)),
        certificate=Certificate(
            status=Status.OPTIMAL if proven else Status.FEASIBLE,
            solver=entry.bound_solver or entry.solver,
            objective_s=entry.objective_s,
            bound_s=entry.bound_s,
            gap=gap,
        ),
        provenance=provenance_of(problem, {"gap": SolveOptions().gap}, seed=SolveOptions().seed),
    )
