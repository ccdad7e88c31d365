"""Several labels at a node lose no plan below the limit, and tell paths apart that one label mixes."""

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import decision as decisions
from stagecut.planner.solvers.exact.decision import Decision
from tests.catalogue import WEIGHTS_ONLY, chain, job, one_device_per_server
from tests.network_paths import paths_by_plan, with_queues
from tests.property.strategies import problems
from tests.shared_fabrics import on_shared_fabrics

SLACK = 1 + 1e-9


def check_no_plan_is_lost(problem, random, *, fastest=False):
    """The limit is the simulated time of one of the plans, and with few labels a node many become one."""
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[random.integers(len(problem.variants))]))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 300)
    seconds = iteration_times([costs.plan(plan) for plan in paths])
    limit_s = (min(seconds) if fastest else random.choice(seconds)) * SLACK
    decision = Decision(build_rows(network))
    assert decision.path_below(limit_s) is not None
    plans = {tuple(path.tolist()): plan for plan, path in paths.items()}
    for width in (1, 2, 3, 300):
        reached = decision.reached(width)
        assert reached.any
        for path in reached.paths:
            assert max(bound_rows(costs.plan(plans[tuple(path.tolist())]))["busy"]) <= limit_s * SLACK


@settings(max_examples=40)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=24).map(with_queues), st.integers(0, 2**32 - 1))
def test_no_plan_is_lost(problem, seed):
    check_no_plan_is_lost(problem, np.random.default_rng(seed))


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1))
@example(334)  # played in spite of a bridge, the fastest plan would be lost
def test_no_plan_is_lost_where_the_first_host_is_played(seed):
    random = np.random.default_rng(seed)
    check_no_plan_is_lost(on_shared_fabrics(random), random, fastest=True)


@pytest.fixture
def three_kinds(monkeypatch):
    """Rows of four layers on devices that take 4, 5 and 6 s for one, 2 s between them, 8 micro-batches: 89 s at best.

    Decisions about them have one label a node.
    """
    monkeypatch.setattr(decisions, "WIDTHS", ())
    names = {"slow": 6.0, "middle": 5.0, "fast": 4.0}
    problem = Problem(
        model=chain(4, names, params_bytes=2.0, output_bytes=2.0),
        cluster=one_device_per_server(*names, network=Link(bandwidth_bytes_per_s=1.0)),
        job=job(8, optimizer=WEIGHTS_ONLY),
    )
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    assert min(iteration_times([costs.plan(plan) for plan in paths_by_plan(network)])) == 89.0
    return build_rows(network)


def test_two_labels_show_what_one_mixes(three_kinds):
    decision = Decision(three_kinds)
    assert decision.path_below(86.0) is not None
    one, two = decision.reached(1), decision.reached(2)
    assert one.any and not one.paths
    assert not two.any


def test_a_decision_has_as_many_labels_as_it_takes(three_kinds, monkeypatch):
    monkeypatch.setattr(decisions, "WIDTHS", (1, 2))
    decision = Decision(three_kinds)
    assert decision.path_below(86.0) is None
    tried = Decision(three_kinds, last_tried=decision.last_tried)
    assert tried.path_below(86.0) is not None  # there are no fewer labels than before
    found = Decision(three_kinds).path_below(89.0 * SLACK)
    assert found.path.tolist() == Decision(three_kinds).path_below(89.0 * SLACK).path.tolist()


def test_too_many_labels_give_no_answer(three_kinds, monkeypatch):
    monkeypatch.setattr(decisions, "MOST_LABELS", 3)
    decision = Decision(three_kinds)
    assert decision.path_below(86.0) is not None
    assert decision.reached(2) is None
