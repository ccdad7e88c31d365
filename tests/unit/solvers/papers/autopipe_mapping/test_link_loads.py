"""Loads of links, and the rows that follow from them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.models import build_cluster, build_model
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import PlacedStage, assemble
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.papers.autopipe_mapping.link_loads import (
    TiedSum,
    link_loads,
    load_bound,
    load_rows,
    tied_sums,
    tied_weights,
)
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.pipelines import pipeline_costs, random_costs, random_routes
from tests.property.strategies import problems

PLAIN = (Schedule.ONE_F_ONE_B, Schedule.EAGER_ONE_F_ONE_B, Schedule.GPIPE)


def _two_hosts(**changes):
    """Four stages on hosts a and b, two on each, that share a fabric each: c = 1 inside, 2 between; M = 3."""
    out, back = ("a:nic-out", "b:nic-in"), ("b:nic-out", "a:nic-in")
    return pipeline_costs(
        [1] * 4,
        [2] * 4,
        [1, 2, 1],
        micro_batches=3,
        forward_links=(("a:fabric",), out, ("b:fabric",)),
        backward_links=(("a:fabric",), back, ("b:fabric",)),
        **changes,
    )


def test_messages_load_fabrics_both_ways_and_interfaces_one_way_each():
    """3 messages of 1 s in each direction on a fabric, 3 of 2 s over each direction of an interface.

    Flows are three activations, then three gradients.
    """
    loads = link_loads(_two_hosts())
    assert loads.names == ("a:fabric", "a:nic-out", "b:nic-in", "b:fabric", "b:nic-out", "a:nic-in")
    assert np.nonzero(loads.messages)[1].tolist() == [0, 3, 1, 1, 2, 5, 4, 4]
    assert loads.messages_s.tolist() == [6, 6, 6, 6, 6, 6]
    assert loads.total_s.tolist() == [6, 6, 6, 6, 6, 6]


def test_all_reduces_and_tied_sums_are_counted_once():
    """All-reduces of 5 and 7 s of the stages on a over its interface; a tied sum of 4 s between both hosts."""
    rings = (("a:nic-in", "a:nic-out"),) * 2 + ((),) * 2
    costs = _two_hosts(sync_s=np.array([5.0, 7, 0, 0]), sync_links=rings)
    tied = TiedSum(seconds=4.0, route=("a:nic-out", "b:nic-in", "b:nic-out", "a:nic-in"))
    loads = link_loads(costs, (tied,))
    of = dict(zip(loads.names, loads.total_s.tolist(), strict=True))
    assert (of["a:nic-out"], of["b:nic-in"], of["a:fabric"]) == (6 + 12 + 4, 6 + 4, 6)


def test_rows_of_one_shared_fabric_by_hand():
    """Two stages, F = B = 1, c = 2 on one fabric, M = 3: total = 8, and 6 messages of 2 s.

    The first activation is ready at 1, the first gradient at 5. After the last activation there are F + B of stage 1
    and the way back, 1 + 1 + 2 + 1 = 5, after the last gradient there is B = 1: 1 + 12 + 1 = 14. The simulator says 16.
    """
    costs = pipeline_costs([1, 1], [1, 1], 2, micro_batches=3, forward_links=(("f",),), backward_links=(("f",),))
    assert load_rows(costs)["messages"].tolist() == [14.0]
    assert load_bound(costs) == 14.0
    assert iteration_times([costs]).tolist() == [16.0]


def test_all_reduces_in_line_follow_the_work_of_their_stage():
    """Stage 1 is done at PF + M (F + B) = 1 + 8 = 9 at the earliest; both all-reduces, 3 + 5 s, are to come: 17."""
    costs = pipeline_costs([1, 1], [1, 1], micro_batches=4, sync_s=np.array([3.0, 5.0]), sync_links=(("n",), ("n",)))
    assert load_rows(costs)["all-reduces"].tolist() == [8 + 3, 9 + 8]


def test_a_plan_without_named_links_has_no_rows():
    """A single stage, for example."""
    assert load_bound(pipeline_costs([1], [1], micro_batches=2)) == 0.0


@settings(max_examples=25)
@given(problems(max_layers=5))
def test_no_plan_is_faster_than_the_loads_of_its_links(problem):
    """Every plan of small problems with replicas, several pipelines, bridges, shared fabrics and measured links."""
    costs = CostModel(problem)
    numbers = [costs.plan(plan) for plan in all_plans(problem, costs)]
    assume(numbers)
    for number, seconds in zip(numbers, iteration_times(numbers), strict=True):
        assert load_bound(number) <= seconds * (1 + 1e-9)


@settings(max_examples=200)
@given(
    seed=st.integers(0, 2**32 - 1), style=st.sampled_from(["real", "whole", "rare"]), schedule=st.sampled_from(PLAIN)
)
def test_no_pipeline_is_faster_than_the_loads_of_any_links(seed, style, schedule):
    """Up to five stages whose flows use up to two of four links in any combination."""
    rng = np.random.default_rng(seed)
    stages, micro_batches = (int(number) for number in rng.integers(1, (6, 9)))
    routes = random_routes(rng, 3 * stages - 2, names=4)
    costs = random_costs(rng, routes, schedule=schedule, micro_batches=micro_batches, style=style)
    (seconds,) = iteration_times([costs])
    assert load_bound(costs) <= seconds * (1 + 1e-9)


def _gpt2():
    job = Job(
        global_batch=8,
        micro_batches=(1,),
        optimizer=standard_optimizer("adamw", Precision.FP16),
        schedules=(Schedule.ONE_F_ONE_B,),
    )
    return Problem(model=build_model("gpt2-345m"), cluster=build_cluster("hetpipe-16"), job=job)


def test_a_tied_embedding_is_summed_between_its_first_and_last_owner():
    """The head holds a copy of the embedding of 50,257 words: 2 bytes of gradient per parameter.

    A ring of 2 over 7 GB/s takes 2 steps of half of the bytes each: bytes / 7 GB/s + 2 x (2 x 5 us).
    """
    problem = _gpt2()
    costs, model = CostModel(problem), problem.model
    (pair,) = tied_weights(costs)
    assert (pair.owner, pair.copy, pair.gradient_bytes) == (0, model.num_layers - 1, 50257 * 1024 * 2)
    halves = [
        PlacedStage(stop=stop, placement=Placement(server_class=index, island=0), opens=True)
        for index, stop in enumerate((model.num_layers // 2, model.num_layers))
    ]
    plan = assemble(costs, problem.variants[0], tuple(halves))
    (tied,) = tied_sums(costs, plan)
    assert tied.seconds == pytest.approx(pair.gradient_bytes / 7e9 + 20e-6, rel=1e-12)
    assert tied.route == ("titan-v:nic-out", "titan-rtx:nic-in", "titan-rtx:nic-out", "titan-v:nic-in")


def test_no_sum_is_needed_where_one_stage_has_both():
    """Nor where nothing is tied."""
    problem = _gpt2()
    problem = replace(problem, cluster=build_cluster("h100-8"))
    whole = PlacedStage(stop=problem.model.num_layers, placement=Placement(server_class=0, island=0), opens=True)
    costs = CostModel(problem)
    assert tied_sums(costs, assemble(costs, problem.variants[0], (whole,))) == ()
    untied = tuple(replace(layer, shared_params_bytes=0.0) for layer in problem.model.layers)
    assert tied_weights(CostModel(replace(problem, model=replace(problem.model, layers=untied)))) == ()
