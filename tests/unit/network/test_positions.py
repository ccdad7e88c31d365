"""Networks with positions made from those without."""

import math
from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.network.interval_costs import depths_by_position
from stagecut.planner.network.stage_network import with_positions
from tests.catalogue import chain, job, kinds
from tests.network_paths import coarse_network, paths_by_plan, plan_paths
from tests.property.strategies import problems

LAWS = settings(max_examples=40)
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=3)


def hosts(count, *, num_layers, memory_bytes=math.inf, num_microbatches=9, **bytes_):
    """Equal layers, and hosts of one device."""
    server = Server(name="host", count=count, islands=(Island(device_type="gpu", count=1),))
    cluster = Cluster(name="hosts", device_types=kinds(gpu=memory_bytes), servers=(server,))
    return Problem(model=chain(num_layers, {"gpu": 2.0}, **bytes_), cluster=cluster, job=job(num_microbatches))


@LAWS
@given(SMALL)
def test_stages_to_come_are_counted_as_on_paths(problem):
    """No plan has fewer or more of them after a node than its range says, and every path ends with none to come."""
    network = coarse_network(problem)
    fewest, most = network.stages_to_come()
    for path in paths_by_plan(network).values():
        stages = network.arcs.is_stage[path]
        to_come = stages[::-1].cumsum()[::-1]
        assert (fewest[network.arcs.tail[path]] <= to_come).all()
        assert (to_come <= most[network.arcs.tail[path]]).all()
    assert fewest[-1] == most[-1] == 0


@LAWS
@given(SMALL)
def test_positions_count_down_to_the_last_stage(problem):
    """Along every path, and warm-up depths follow them."""
    network = with_positions(coarse_network(problem))
    paths = plan_paths(network)
    assume(paths)
    for path in paths:
        stages = path[network.arcs.is_stage[path]]
        assert network.arcs.least_position[stages].tolist() == list(range(len(stages), 0, -1))
        assert (network.arcs.least_position == network.arcs.largest_position)[path].all()


@LAWS
@given(SMALL, st.integers(1, 4))
def test_plans_of_the_lengths_meant_are_all_there(problem, longest):
    """Those of other lengths may be, or not."""
    network = coarse_network(problem)
    plans = paths_by_plan(network).keys()
    shortest = max(1, longest - 1)
    found = paths_by_plan(with_positions(network.of_lengths(shortest, longest))).keys()
    assert {plan for plan in plans if shortest <= len(plan.stages) <= longest} <= found


def test_number_of_arcs_is_known_beforehand():
    """The number holds as long as all stages fit in memory."""
    network = coarse_network(hosts(3, num_layers=4))
    assert network.num_positions == len(with_positions(network).arcs)


def test_ranges_leave_out_positions():
    """Plans of 1, 2 or 3 stages: with one stage to come from the start, only the first is left."""
    network = coarse_network(hosts(3, num_layers=4))
    lengths = {len(plan.stages) for plan in paths_by_plan(with_positions(network))}
    assert lengths == {1, 2, 3}
    arcs = network.arcs
    narrowed = network.narrowed(arcs.least_position, np.minimum(arcs.largest_position, 1))
    assert {len(plan.stages) for plan in paths_by_plan(with_positions(narrowed))} == {1}


def test_stages_that_do_not_fit_at_their_position_are_left_out():
    """3 layers that save 4 bytes each, 9 bytes: [0, 1) fits with two micro-batches in flight, not with three.

    [0, 2) never does, for it has at least two, nor does [0, 3); [1, 3) with one.
    """
    problem = hosts(3, num_layers=3, memory_bytes=9.0, saved_bytes=4.0)
    network = coarse_network(replace(problem, job=replace(problem.job, recompute=Recompute.NEVER)))
    for found in (network, with_positions(network)):
        assert [[stage.stop for stage in plan.stages] for plan in paths_by_plan(found)] == [[1, 3]]
    assert max(with_positions(network).arcs.least_position) == 2


def test_depths_follow_the_schedule_up_to_the_number_of_micro_batches():
    """Entry 0 is unused, and there is one more than there are positions."""
    problem = hosts(3, num_layers=4, num_microbatches=4)
    variant = problem.variants[0]
    assert depths_by_position(variant, 4)[1:].tolist() == [1, 2, 3, 4, 4]
    eager = type(variant)(schedule=Schedule.EAGER_ONE_F_ONE_B, micro_batch=1, num_microbatches=4)
    assert depths_by_position(eager, 3)[1:].tolist() == [1, 3, 4, 4]
