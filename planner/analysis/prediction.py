"""What the planner expects of a plan, and the plan file that records it."""

from collections.abc import Sequence
from dataclasses import dataclass

from stagecut.planner.core.arrays import Floats
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.io.files.plan_file import Certificate, PlanFile, Prediction, Provenance, StagePrediction
from stagecut.planner.simulator.timeline import Timeline, simulate


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """A plan with its costs and one simulated iteration."""

    problem: Problem
    plan: Plan
    costs: PlanCosts
    timeline: Timeline

    @property
    def samples_per_s(self) -> float | None:
        """Throughput; None where an iteration takes no time."""
        iteration_s = self.timeline.iteration_s
        return self.problem.job.global_batch / iteration_s if iteration_s > 0 else None


def play(problem: Problem, plan: Plan) -> Played:
    """Derive the costs of a plan and simulate one iteration."""
    costs = CostModel(problem).plan(plan)
    return Played(problem=problem, plan=plan, costs=costs, timeline=simulate(costs))


def predict(played: Played) -> Prediction:
    """Times and memory as a plan file records them."""
    costs = played.costs
    columns: dict[str, Sequence[float] | Floats] = {
        "forward_s": costs.forward_s,
        "backward_s": costs.backward_s,
        "transfer_s": [*costs.transfer_s, 0.0],
        "sync_s": costs.sync_s,
        "update_s": costs.update_s,
        "memory_bytes": costs.memory_bytes,
        "limit_bytes": costs.limit_bytes,
    }
    stages = (
        StagePrediction(**{name: float(column[index]) for name, column in columns.items()})
        for index in range(costs.num_stages)
    )
    return Prediction(iteration_s=played.timeline.iteration_s, stages=tuple(stages))


def plan_file_of(played: Played, result: Result, provenance: Provenance) -> PlanFile:
    """The plan file of a result, without the duration of the search: equal searches give equal files."""
    certificate = Certificate(
        status=result.status,
        solver=result.solver,
        objective_s=played.timeline.iteration_s,
        bound_s=result.bound_s,
        gap=result.gap,
    )
    return PlanFile(
        problem=played.problem,
        plan=played.plan,
        predicted=predict(played),
        certificate=certificate,
        provenance=provenance,
    )


def provenance_tree(provenance: Provenance) -> dict[str, object]:
    """Where an answer comes from, as the plan file records it."""
    return {
        "versions": dict(provenance.versions),
        "options": dict(provenance.options),
        "seed": provenance.seed,
        "input_hashes": dict(provenance.input_hashes),
    }
