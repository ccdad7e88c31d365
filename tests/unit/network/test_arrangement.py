"""Plans without names."""

import pytest
from hypothesis import assume, given, settings

from stagecut.planner.core.job import Recompute
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import PlacedStage, arrangement_of, assemble, recompute_choice
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.catalogue import chain, job, one_server
from tests.property.strategies import problems

SINGLE = Placement(server_class=0, island=0)


@settings(max_examples=40)
@given(problems(max_layers=5))
def test_assembling_the_layout_of_a_plan_gives_the_plan(problem):
    costs = CostModel(problem)
    plans = list(all_plans(problem, costs))
    assume(plans)
    for plan in plans:
        part = costs.of(plan.share)
        layout = arrangement_of(part, plan)
        assert assemble(part, plan.variant, layout) == plan


def costs_of(memory_bytes, recompute=Recompute.AUTO):
    """Two devices of a host; layers that keep 4 bytes each, or inputs of 1 and 4 to work, recomputing."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    cluster = one_server("gpu", 2, memory_bytes=memory_bytes)
    return CostModel(Problem(model=model, cluster=cluster, job=job(4, recompute=recompute)))


def blocks(*stops):
    return tuple(PlacedStage(stop=stop, placement=SINGLE, opens=index == 0) for index, stop in enumerate(stops))


def test_stages_get_the_depth_of_their_position_and_recompute_where_they_must():
    """[0, 2) keeps 2 x 8 bytes: too many for 12; recomputing 2 x 1 + 4. [2, 3) keeps 4."""
    costs = costs_of(12.0)
    plan = assemble(costs, costs.problem.variants[0], blocks(2, 3))
    assert [(s.start, s.stop, s.devices, s.warmup_depth, s.recompute) for s in plan.stages] == [
        (0, 2, ("host/0",), 2, True),
        (2, 3, ("host/1",), 1, False),
    ]


def test_every_pipeline_gets_the_stages_on_devices_of_its_own():
    """Two pipelines share the host's two devices, and 4 micro-batches."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(4, pipelines=(2,)))
    (variant,) = problem.variants
    plan = assemble(CostModel(problem).of(variant.share), variant, blocks(3))
    assert [[stage.devices for stage in pipeline.stages] for pipeline in plan.pipelines] == [
        [("host/0",)],
        [("host/1",)],
    ]
    assert plan.num_microbatches == 2


def test_layout_without_memory_has_no_plan():
    """The same stages under 5 bytes: [0, 2) recomputing needs 6."""
    costs = costs_of(5.0)
    assert assemble(costs, costs.problem.variants[0], blocks(2, 3)) is None


def test_layout_without_devices_has_no_plan():
    costs = costs_of(100.0)
    assert assemble(costs, costs.problem.variants[0], blocks(1, 2, 3)) is None


@pytest.mark.parametrize(
    ("recompute", "memory_bytes", "choice"),
    [
        (Recompute.NEVER, 16.0, False),
        (Recompute.NEVER, 15.0, None),
        (Recompute.ALWAYS, 16.0, True),
        (Recompute.ALWAYS, 5.0, None),
        (Recompute.AUTO, 16.0, False),
        (Recompute.AUTO, 15.0, True),
        (Recompute.AUTO, 6.0, True),
        (Recompute.AUTO, 5.0, None),
    ],
)
def test_recomputation_follows_the_job(recompute, memory_bytes, choice):
    """[0, 2) with two micro-batches in flight: 16 bytes without, 2 x 1 + 4 = 6 with."""
    costs = costs_of(memory_bytes, recompute)
    assert recompute_choice(costs, costs.problem.variants[0], SINGLE, 0, 2, 2) is choice
