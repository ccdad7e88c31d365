"""What the planner expects of a plan, and the plan file that records it."""

from dataclasses import dataclass, fields

from stagecut.planner.analysis.throughput import Throughput, throughput_of
from stagecut.planner.core.plan import Plan
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Result
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.memory_parts import MemoryParts, memory_parts
from stagecut.planner.cost.plan_costs import PlanCosts
from stagecut.planner.io.files.plan_file import PlanFile
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, Provenance, StagePrediction
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

    @property
    def throughput(self) -> Throughput | None:
        """Rates, utilisation and price of all pipelines; None where an iteration takes no time."""
        if self.samples_per_s is None:
            return None
        stages = (stage for pipeline in self.plan.pipelines for stage in pipeline.stages)
        devices = {name for stage in stages for name in stage.devices}
        return throughput_of(self.problem, devices, self.samples_per_s)

    @property
    def memory(self) -> tuple[MemoryParts, ...]:
        """What fills the memory of each stage's devices."""
        return memory_parts(CostModel(self.problem), self.plan, self.costs)


def play(problem: Problem, plan: Plan) -> Played:
    """Derive the costs of a plan and simulate one iteration."""
    costs = CostModel(problem).plan(plan)
    return Played(problem=problem, plan=plan, costs=costs, timeline=simulate(costs))


def predict(played: Played) -> Prediction:
    """Times and memory as a plan file records them."""
    columns = {field.name: getattr(played.costs, field.name) for field in fields(StagePrediction)}
    columns["transfer_s"] = [*columns["transfer_s"], 0.0]  # the last stage sends nothing
    stages = (
        StagePrediction(**{name: float(column[index]) for name, column in columns.items()})
        for index in range(played.costs.num_stages)
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
