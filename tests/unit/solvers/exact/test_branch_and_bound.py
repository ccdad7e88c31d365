"""Nodes of the branch and bound over the plans of a variant: what they prove, and what their children keep."""

import math
from contextlib import contextmanager

import pytest
from hypothesis import assume, given, settings

from stagecut.planner.network.rows import build_rows
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.exact import branch_and_bound, questions
from stagecut.planner.solvers.exact.agenda import Agenda
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.branch_and_bound import Node
from stagecut.planner.solvers.exact.path_trials import PathTrials
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import CATALOGUE, fast_and_slow
from tests.network_paths import coarse_network, paths_by_plan
from tests.property.strategies import problems

SLACK = 1 + 1e-9
SMALL = problems(max_layers=4, max_devices=4, max_micro_batches=4)
MOST_STEPS = 60


def whole(problem):
    """All plans of the first variant as the root node, with their times and bounds."""
    search = Search(problem, SolveOptions(time_limit_s=None))
    rows = build_rows(coarse_network(problem))
    plans = list(paths_by_plan(rows.network))
    numbers = [search.costs.plan(plan) for plan in plans]
    times = dict(zip(plans, iteration_times(numbers) if plans else (), strict=True))
    bounds = dict(zip(plans, map(lower_bound, numbers), strict=True))
    return search, node_of(rows), times, bounds


def node_of(rows):
    """The root node over some rows."""
    return Node(rows, 0.0, prices=ArcFixing.without_prices(rows.network.cluster).prices)


def bisect_fully(search, node, limit_s):
    """Bisect until it is time to branch, or nothing is left below the limit."""
    for _ in range(MOST_STEPS):
        if node.ready_to_branch(limit_s) or node.bound_s >= limit_s:
            break
        node.bisect(search, limit_s)


def check_children(search, node, plans, times, limit_s):
    """Every plan wanted is in one of the children, or was simulated."""
    smaller = list(node.children(search, limit_s))
    found = [paths_by_plan(small.rows.network).keys() for small in smaller]
    assert all(small.bound_s == node.bound_s for small in smaller)
    for plan in plans:
        assert any(plan in kept for kept in found) or search.best_s <= times[plan]
    return smaller


@settings(max_examples=50)
@given(SMALL)
def test_bound_is_never_above_a_plan_that_was_not_simulated(problem):
    search, node, times, _ = whole(problem)
    assume(times)
    best_s = min(times.values())
    for _ in range(8):
        node.bisect(search, 2 * best_s)
        assert min(node.bound_s, search.best_s) <= best_s * SLACK


@pytest.mark.parametrize("many_arcs", [0, branch_and_bound.MANY_ARCS])
@settings(max_examples=30)
@given(problem=SMALL)
def test_children_keep_every_plan_below_the_limit(many_arcs, problem):
    """Four times over: by the number of stages first, or into a network with positions at once."""
    search, node, times, bounds = whole(problem)
    assume(times and min(times.values()) > 0)
    limit_s = 1.5 * min(times.values())
    waiting = [node]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branch_and_bound, "MANY_ARCS", many_arcs)
        for _ in range(4):
            node = waiting.pop()
            bisect_fully(search, node, limit_s)
            if node.bound_s >= limit_s:
                break
            network = node.rows.network
            wanted = {plan for plan in paths_by_plan(network) if bounds[plan] <= limit_s}
            waiting += check_children(search, node, wanted, times, limit_s)
            if not waiting:
                break


@settings(max_examples=40)
@given(SMALL)
def test_what_is_left_for_a_limit_holds_every_plan_below_it(problem):
    """Asked at the limit itself: depths and arcs are narrowed down in turn."""
    search, node, times, bounds = whole(problem)
    assume(times and min(times.values()) > 0)
    limit_s = 1.2 * min(times.values())
    node.bisect(search, limit_s)
    left = paths_by_plan(node.rows.network)
    assert node.bound_s < limit_s
    assert {plan for plan, bound_s in bounds.items() if bound_s <= limit_s} <= left.keys()


@contextmanager
def only_dividing():
    """Nothing is simulated, so nothing but division rules plans out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PathTrials, "one", lambda *_, **__: None)
        patch.setattr(questions, "MOST_STEPS", 0)
        patch.setattr(questions, "WORTH_A_BEAM", -1)
        yield


def lower_and_rest(search, node):
    """The first part taken out of a node far below the limit, the node and its plans before; None if there is none."""
    waiting = [node]
    for _ in range(MOST_STEPS):
        if not waiting:
            break
        part = waiting.pop(0)
        before = plans_of(part)
        parts = part.step(search).parts
        if len(parts) == 2 and parts[1] is part:
            return *parts, before
        waiting += parts
    return None


def plans_of(node):
    """The plans whose paths are in its network."""
    return paths_by_plan(node.rows.network).keys()


@settings(max_examples=20)
@given(SMALL)
def test_plans_far_below_the_limit_are_a_part_of_their_own(problem):
    """The node keeps all others, of which that part proves nothing: the limit is that of the slowest plan."""
    search, node, times, bounds = whole(problem)
    assume(times and min(times.values()) > 0)
    search.offer([max(times, key=times.__getitem__)])
    limit_s = search.best_s * (1 - search.options.gap)
    with only_dividing():
        found = lower_and_rest(search, node)
        assume(found)
        lower, rest, before = found
        of_lower, end_s = plans_of(lower), rest.bound_s
        agenda = Agenda(search, [lower])
        agenda.run()
    assert {plan for plan in before if bounds[plan] <= end_s} <= of_lower
    assert {plan for plan in before if end_s < bounds[plan] <= limit_s} <= plans_of(rest)
    assert agenda.bound_s == math.inf


def test_narrow_interval_ends_the_bisection():
    """One device of each kind, and memory for one layer: the best of two plans takes 4 s, and so do its rows.

    With a limit just above, the width has to be small; with one far above, a quarter of what is open will do.
    """
    search, node, _, _ = whole(fast_and_slow())
    bisect_fully(search, node, 4.001)
    assert node.bound_s == pytest.approx(4.0, rel=branch_and_bound.COARSE_PRECISION)
    search, node, _, _ = whole(fast_and_slow())
    bisect_fully(search, node, 8.0)
    assert node.narrow(8.0)
    assert node.bound_s <= 4.0 * SLACK
    assert 4.0 - node.bound_s <= branch_and_bound.WORTH_BISECTING * (8.0 - node.bound_s)


def test_limit_that_nothing_stays_below_is_a_bound():
    search, node, _, _ = whole(fast_and_slow())
    node.bisect(search, 3.9)
    assert node.bound_s == 3.9
    assert not node.narrow(8.0)


def test_node_of_a_single_plan_has_no_children():
    """A single device: the whole model is one stage."""
    search, node, times, _ = whole(CATALOGUE[0].problem)
    (seconds,) = times.values()
    bisect_fully(search, node, math.inf)
    (alone,) = node.children(search, 2 * seconds)
    bisect_fully(search, alone, 2 * seconds)
    assert alone.is_single
    assert list(alone.children(search, 2 * seconds)) == []
