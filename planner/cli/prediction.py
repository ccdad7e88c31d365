"""Plan files as the planner writes them: every number from the costs and the simulator."""

from dataclasses import dataclass

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
    """Derive the costs of a plan, and simulate it."""
    costs = CostModel(problem).plan(plan)
    return Played(problem=problem, plan=plan, costs=costs, timeline=simulate(costs))


def predict(played: Played) -> Prediction:
    """Times and memory as a plan file has them."""
    costs = played.costs
    transfers_s = [*costs.transfer_s.tolist(), 0.0]
    return Prediction(
        iteration_s=played.timeline.iteration_s,
        stages=tuple(
            StagePrediction(
                forward_s=float(costs.forward_s[index]),
                backward_s=float(costs.backward_s[index]),
                transfer_s=transfers_s[index],
                sync_s=float(costs.sync_s[index]),
                update_s=float(costs.update_s[index]),
                memory_bytes=float(costs.memory_bytes[index]),
                limit_bytes=float(costs.limit_bytes[index]),
            )
            for index in range(costs.num_stages)
        ),
    )


def plan_file_of(played: Played, result: Result, provenance: Provenance) -> PlanFile:
    """The plan file of a result; the seconds of the search stay out, so that equal searches give equal files."""
    objective_s = played.timeline.iteration_s
    return PlanFile(
        problem=played.problem,
        plan=played.plan,
        predicted=predict(played),
        certificate=Certificate(
            status=result.status,
            solver=result.solver,
            objective_s=objective_s,
            bound_s=result.bound_s,
            gap=result.gap,
        ),
        provenance=provenance,
    )


def provenance_tree(provenance: Provenance) -> dict[str, object]:
    """Where an answer comes from, as the plan file has it."""
    return {
        "versions": dict(provenance.versions),
        "options": dict(provenance.options),
        "seed": provenance.seed,
        "input_hashes": dict(provenance.input_hashes),
    }
