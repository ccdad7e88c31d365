"""Device groups of interleaved plans."""

import itertools
from dataclasses import replace

from hypothesis import assume, given, settings

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.interleaved.shapes import floor_s, interleaved_plan, shapes_of
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.catalogue import WEIGHTS_ONLY, chain, job, kinds, one_server
from tests.property.strategies import problems


def interleaved(problem):
    return replace(problem, job=replace(problem.job, schedules=(Schedule.INTERLEAVED,)))


def shapes_with_costs(problem):
    costs = CostModel(problem)
    for variant in problem.variants:
        own = costs.of(variant.share)
        yield from ((own, shape) for shape in shapes_of(own, variant))


def all_stops(problem, shape):
    num_layers = problem.model.num_layers
    for cuts in itertools.combinations(range(1, num_layers), shape.num_stages - 1):
        yield (*cuts, num_layers)


def test_hosts_are_filled_one_after_the_other():
    """Hosts of 3: a device per group, and 1 .. 6 groups but 4 and 5, which do not divide M = 6; nor 6, of 10 layers."""
    cluster = Cluster(
        name="two",
        device_types=kinds(gpu=float("inf")),
        servers=(Server(name="host", count=2, islands=(Island(device_type="gpu", count=3),)),),
    )
    problem = Problem(model=chain(10, {"gpu": 1.0}), cluster=cluster, job=job(6, schedule=Schedule.INTERLEAVED))
    shapes = [shape for _, shape in shapes_with_costs(problem)]
    assert [shape.num_groups for shape in shapes] == [1, 2, 3]
    wider = replace(problem, model=chain(12, {"gpu": 1.0}))
    *_, last = (shape for _, shape in shapes_with_costs(wider))
    assert [group.hosts for group in last.groups] == [(0,), (0,), (0,), (1,), (1,), (1,)]
    assert [group.opens for group in last.placed_groups] == [True, False, False, True, False, False]


@settings(max_examples=25)
@given(problems(max_layers=6, max_micro_batches=4).map(interleaved))
def test_shapes_and_cuts_give_the_plans_of_the_search_space(problem):
    """Those that brute force lists by the words of docs/search_space.md."""
    plans = [
        plan
        for costs, shape in shapes_with_costs(problem)
        for stops in all_stops(problem, shape)
        if (plan := interleaved_plan(costs, shape, stops)) is not None
    ]
    assert sorted(map(repr, plans)) == sorted(map(repr, all_plans(problem)))


@settings(max_examples=25)
@given(problems(max_layers=5, max_micro_batches=4).map(interleaved))
def test_no_plan_is_faster_than_the_floor_of_its_shape(problem):
    num_plans = 0
    for costs, shape in shapes_with_costs(problem):
        plans = (interleaved_plan(costs, shape, stops) for stops in all_stops(problem, shape))
        times_s = iteration_times([costs.plan(plan) for plan in plans if plan is not None])
        assert (times_s >= floor_s(costs, shape) * (1 - 1e-9)).all()
        num_plans += len(times_s)
    assume(num_plans > 0)


def test_pipelines_are_put_together_only_of_stages_that_fit():
    """Thousands of them take seconds, so memory comes first: 2 bytes a device, 3 for its two stages of 3 layers."""
    cluster = one_server("gpu", 4, memory_bytes=2.0)
    model = chain(6, {"gpu": 1.0}, params_bytes=2.0)
    chosen = job(4, schedule=Schedule.INTERLEAVED, optimizer=WEIGHTS_ONLY, pipelines=(2,))
    costs, shape = next(
        found
        for found in shapes_with_costs(Problem(model=model, cluster=cluster, job=chosen))
        if found[1].num_groups == 2
    )
    assert interleaved_plan(costs, shape, (1, 2, 4, 6)) is None
    assert "pipeline_names" not in vars(costs)
