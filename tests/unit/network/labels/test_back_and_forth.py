"""Sweeps either way, and the paths that they leave, lose no plan below the limit."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.labels.back_and_forth import Rival
from stagecut.planner.network.labels.enumeration import one_by_one
from stagecut.planner.network.rows import build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import bound_rows, lower_bound
from stagecut.planner.simulator.chains import chains_of
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.simulator.turns import first_backwards
from stagecut.planner.solvers.exact.arc_fixing import ArcFixing
from stagecut.planner.solvers.exact.decision import Decision
from tests.catalogue import WEIGHTS_ONLY, chain, job, one_device_per_server
from tests.network_paths import paths_by_plan, with_queues
from tests.property.strategies import problems
from tests.shared_fabrics import on_shared_fabrics

SLACK = 1 + 1e-9


def last_way_home(costs):
    """Loops between any two stages, then the last forward of the second one, its backwards and the way home.

    Micro-batches that do not fill a loop are taken by the first one alone.
    """
    chains, num = chains_of(costs), costs.variant.num_microbatches
    first_s, work_s, depth = first_backwards(costs, chains), costs.forward_s + costs.backward_s, costs.warmup_depth
    latest_s = 0.0
    for stage in np.flatnonzero(num > depth):
        for end in range(stage, costs.num_stages):
            loop_s = work_s[stage : end + 1].sum() + 2 * costs.transfer_s[stage:end].sum()
            loops, left = divmod(num - depth[stage] - 1, depth[stage] - depth[end] + 1)
            there_s = costs.forward_s[stage : end + 1].sum() + costs.transfer_s[stage:end].sum()
            home_s = depth[end] * costs.backward_s[end] + chains.backward_before[end] + chains.tail_s[0]
            latest_s = max(latest_s, first_s[stage] + loops * loop_s + left * work_s[stage] + there_s + home_s)
    return latest_s


def check_paths_left(network, paths, seconds, limit_s, **hints):
    """Of these paths, which take so many seconds, all that take no longer than the limit are left."""
    decision = Decision(build_rows(network), **hints)
    found = decision.path_below(limit_s * SLACK)
    assert found is not None
    left = {tuple(path.tolist()) for path in one_by_one(decision.paths_below(most_steps=10**6, most_paths=500))}
    for path, taken_s in zip(paths, seconds, strict=True):
        if taken_s <= limit_s:
            assert found.possible[path].all()
            assert tuple(path.tolist()) in left


@settings(max_examples=150)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=30), st.integers(0, 2**32 - 1))
def test_every_plan_below_the_limit_is_left(problem, seed):
    """Whatever path sets the windows, and hosts cost. The limit is the simulated time of one of the plans."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    coarse = build_network(costs, problem.variants[-1])
    for network in (coarse, with_positions(coarse)):
        paths = paths_by_plan(network)
        assume(0 < len(paths) < 500)
        seconds = iteration_times([costs.plan(plan) for plan in paths])
        limit_s = random.choice(seconds)
        depths = np.arange(random.integers(1, 5)) + 1
        rival = Rival(depths, np.cumsum(limit_s * random.random(len(depths)))) if random.random() < 0.8 else None
        prices = limit_s * 10.0 ** random.integers(-3, 6, (2, len(problem.cluster.servers)))
        check_paths_left(network, paths.values(), seconds, limit_s, rival=rival, prices=prices)


@settings(max_examples=100)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=6).map(with_queues), st.integers(0, 2**32 - 1))
def test_no_plan_is_lost_where_all_reduces_queue(problem, seed):
    """The limit is the largest row of one of the plans."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[random.integers(len(problem.variants))]))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 500)
    rows_s = np.array([lower_bound(costs.plan(plan)) for plan in paths])
    check_paths_left(network, paths.values(), rows_s, random.choice(rows_s))


@settings(max_examples=100)
@given(st.integers(0, 2**32 - 1))
def test_no_plan_is_lost_where_first_forwards_queue(seed):
    """The search in depth plays them; the limit is the simulated time of one of the plans."""
    random = np.random.default_rng(seed)
    problem = on_shared_fabrics(random)
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 200)
    seconds = iteration_times([costs.plan(plan) for plan in paths])
    check_paths_left(network, paths.values(), seconds, random.choice(seconds))


@settings(max_examples=60)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=30), st.integers(0, 2**32 - 1))
def test_no_plan_is_lost_where_arcs_have_fewer_positions(problem, seed):
    """Those that arc fixing leaves for the time of some plan; asked about that plan, or a faster one."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    network = build_network(costs, problem.variants[-1])
    plans = list(paths_by_plan(network))
    assume(0 < len(plans) < 500)
    latest_s = random.choice(iteration_times([costs.plan(plan) for plan in plans])) * SLACK
    rows, _ = ArcFixing.without_prices(network.cluster).remaining(build_rows(network), latest_s, stop=lambda: False)
    paths = paths_by_plan(rows.network)
    seconds = iteration_times([costs.plan(plan) for plan in paths])
    check_paths_left(rows.network, paths.values(), seconds, random.choice(seconds[seconds <= latest_s]))


def test_paths_whose_positions_do_not_fall_are_no_plans():
    """Three layers on as many hosts: [0, 1) with two stages to come and [1, 2) with three are not on one plan."""
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_device_per_server("gpu", "gpu", "gpu"), job=job(9))
    network = build_network(CostModel(problem), problem.variants[0])
    arcs = network.arcs
    first, second = (arcs.is_stage & (arcs.start == start) & (arcs.stop == start + 1) for start in (0, 1))
    position = np.where(first, 2, np.where(second, 3, arcs.least_position))
    odd = network.narrowed(position, np.maximum(position, np.where(first, 2, arcs.largest_position)))
    left = []
    for chosen in (network, odd):
        decision = Decision(build_rows(chosen))
        assert decision.path_below(1e9) is not None
        paths = one_by_one(decision.paths_below(most_steps=10**6, most_paths=500))
        left.append({tuple(arcs.stop[path[arcs.is_stage[path]]].tolist()) for path in paths})
    assert left[0] - left[1] == {(1, 2, 3)}


@settings(max_examples=50)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=24), st.floats(0.8, 1.2))
def test_what_is_left_is_every_path_in_time_once(problem, share):
    """The limit is around the least simulated time; the busy rows and the loops of all that is left are within it.

    A beam, which follows one window of each path, finds some of these if it is wide enough, and others.
    """
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[-1]))
    paths = paths_by_plan(network)
    assume(0 < len(paths) < 500)
    limit_s = share * min(iteration_times([costs.plan(plan) for plan in paths]))
    decision = Decision(build_rows(network))
    found = decision.path_below(limit_s)
    if found is None:
        return
    left = [tuple(path.tolist()) for path in one_by_one(decision.paths_below(most_steps=10**6, most_paths=500))]
    assert len(set(left)) == len(left)
    narrow, wide = ([tuple(path.tolist()) for path in decision.beam(width)] for width in (1, 500))
    assert len(set(wide)) == len(wide) and (set(left) & set(wide) or not left)
    for path in narrow + wide + left:
        assert found.possible[list(path)].all()
    plans = {tuple(path.tolist()): plan for plan, path in paths.items()}
    for path in left:
        taken = costs.plan(plans[path])
        assert max(bound_rows(taken)["busy"]) <= limit_s * SLACK
        assert last_way_home(taken) <= limit_s * SLACK


def test_paths_that_share_stages_have_their_own_ways_on():
    """Four layers on devices that take 1, 2 and 6 s for one, half a second between them; every plan's time as limit."""
    names = {"slow": 6.0, "middle": 2.0, "fast": 1.0}
    problem = Problem(
        model=chain(4, names, params_bytes=2.0, output_bytes=1.0),
        cluster=one_device_per_server(*names, network=Link(bandwidth_bytes_per_s=2.0)),
        job=job(20, optimizer=WEIGHTS_ONLY),
    )
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    paths = paths_by_plan(network)
    seconds = iteration_times([costs.plan(plan) for plan in paths])
    for limit_s in np.unique(seconds):
        check_paths_left(network, paths.values(), seconds, limit_s)


def test_paths_left_have_no_slow_loops():
    """Three layers on devices that take 4, 5 and 6 s for one, a second between them, 31 micro-batches.

    The first micro-batch comes back after 4 + 5 + 6 + 2 x 2 x 1 = 19 s. Loops over all devices carry three of them in
    as long: nine before the last forward, and its round trip. So two orders take 19 + 9 x 19 + 19 = 209, and the others
    longer. Labels, which follow one window each, leave some below that.
    """
    names = {"slow": 6.0, "middle": 5.0, "fast": 4.0}
    problem = Problem(
        model=chain(3, names, params_bytes=2.0, output_bytes=2.0),
        cluster=one_device_per_server(*names, network=Link(bandwidth_bytes_per_s=2.0), memory_bytes=1.0),
        job=job(31, optimizer=WEIGHTS_ONLY),
    )
    decision = Decision(build_rows(with_positions(build_network(CostModel(problem), problem.variants[0]))))
    for limit_s, num_left in ((209 * SLACK, 2), (208.9, 0)):
        assert decision.path_below(limit_s) is not None
        assert len(decision.paths_below(most_steps=1000, most_paths=6)) == num_left


@settings(max_examples=25)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=6))
def test_too_many_paths_or_steps_give_no_answer(problem):
    """All paths are in time without a limit."""
    network = with_positions(build_network(CostModel(problem), problem.variants[-1]))
    paths = paths_by_plan(network)
    assume(1 < len(paths) < 500)
    decision = Decision(build_rows(network))
    assert decision.path_below(1e9) is not None
    assert len(decision.paths_below(most_steps=10**6, most_paths=len(paths))) == len(paths)
    assert decision.paths_below(most_steps=10**6, most_paths=len(paths) - 1) is None
    assert decision.paths_below(most_steps=1, most_paths=len(paths)) is None
