"""A search for all paths ends without an answer where it has too little room, and never where it has enough."""

from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels.enumeration import FIRST_STEPS
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.solvers.exact.decision import Decision
from tests.catalogue import chain, job, one_device_per_server
from tests.network_paths import plan_paths


def test_search_that_has_just_enough_room_is_not_given_up():
    """Every plan is in time, and most ways open more hosts than there are; the search looks ahead more than once."""
    problem = Problem(model=chain(10, {"gpu": 2.0}), cluster=one_device_per_server(*["gpu"] * 4), job=job(9))
    network = with_positions(build_network(CostModel(problem), problem.variants[0]))
    decision, num_paths = Decision(build_rows(network)), len(plan_paths(network))
    assert num_paths > FIRST_STEPS // 2
    assert decision.path_below(1e9) is not None
    for missing in (0, 1):
        paths = decision.paths_below(most_steps=FIRST_STEPS, most_paths=num_paths - missing)
        assert (paths is None) == (missing > 0)
