"""Seconds of the sublots of a plan."""

from dataclasses import replace

from stagecut.planner.core.plan import Pipeline
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.unequal_problems import two_kinds


def test_a_backward_of_several_forwards_takes_as_long_as_theirs():
    """Backwards of the first layer take 8 + 2 x s: 16 s for four samples at once, 2 * 12 s for two forwards of two."""
    problem = two_kinds()
    best = run(problem, "milp", SolveOptions(gap=0.0)).plan
    first, *others = best.stages
    for forward, seconds in ((4, 16.0), (2, 24.0), (1, 40.0)):
        sizes = {"forward_micro_batch": forward, "backward_micro_batch": 4, "warmup_depth": 4 // forward}
        plan = replace(best, pipelines=(Pipeline(stages=(replace(first, **sizes), *others)),))
        assert CostModel(problem).plan(plan).sublots.seconds[TaskKind.BACKWARD, 0, 4] == seconds
