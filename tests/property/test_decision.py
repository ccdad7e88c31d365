"""Labels never rule out a plan, and decide the shared rows exactly."""

from dataclasses import replace

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import Cluster, Island, Link, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.rows import SHARED_FAMILIES, build_rows
from stagecut.planner.network.stage_network import build_network, with_positions
from stagecut.planner.simulator.bounds import lower_bound
from stagecut.planner.solvers.exact.decision import Decision
from stagecut.planner.solvers.reference.brute_force import all_plans
from tests.catalogue import GRADIENTS, WEIGHTS_ONLY, chain, job, kinds, layer, one_device_per_server
from tests.network_paths import paths_by_plan
from tests.property.strategies import problems

SLACK = 1 + 1e-9
ONE = Island(device_type="gpu", count=1)


def least_bounds(problem, costs, families=None):
    """The least lower bound of the plans of each variant that has any."""
    least = {}
    for plan in all_plans(problem, costs):
        value_s = lower_bound(costs.plan(plan), families)
        least[plan.variant] = min(value_s, least.get(plan.variant, value_s))
    return least


def check_best_plans_are_left(problem):
    """At the least bound over all plans of a variant some path must be left, without positions and with."""
    costs = CostModel(problem)
    least = least_bounds(problem, costs)
    assume(least)
    for variant, value_s in least.items():
        network = build_network(costs, variant)
        for chosen in (network, with_positions(network)):
            assert Decision(build_rows(chosen)).path_below(value_s * SLACK) is not None


@settings(max_examples=70)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_all_rows_never_rule_out_the_best_plan(problem):
    """With few micro-batches all families matter."""
    check_best_plans_are_left(problem)


@settings(max_examples=50)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=24))
def test_many_loops_never_rule_out_the_best_plan(problem):
    """With many micro-batches windows of several stages have many loops, whatever labels at a node mix them."""
    check_best_plans_are_left(problem)


def check_least_in_time(problem, seconds):
    """At these seconds labels find a path, and none below, without positions and with."""
    network = build_network(CostModel(problem), problem.variants[0])
    for chosen in (network, with_positions(network)):
        decision = Decision(build_rows(chosen))
        assert decision.path_below(seconds / SLACK) is None
        assert decision.path_below(seconds * SLACK) is not None


def test_labels_see_early_gradients_wait_for_late_activations():
    """Layers of F = B = 4, 1 and 1 s on three hosts that hold one each, 3 s between them, 6 micro-batches.

    Out of the second host: 4 activations from 16 s on, 4 gradients, B_0 of three micro-batches. Other rows: 48 or less.
    """
    model = chain(2, {"gpu": 2.0}, params_bytes=2.0, output_bytes=6.0)
    first = layer("first", {"gpu": 8.0}, params_bytes=2.0, output_bytes=6.0)
    problem = Problem(
        model=replace(model, layers=(first, *model.layers)),
        cluster=one_device_per_server(*["gpu"] * 3, network=Link(bandwidth_bytes_per_s=2.0), memory_bytes=1.0),
        job=job(6, schedule=Schedule.EAGER_ONE_F_ONE_B, optimizer=WEIGHTS_ONLY),
    )
    check_least_in_time(problem, 16.0 + 4 * 3.0 + 4 * 3.0 + 3 * 4.0)


def test_labels_see_activations_alone_on_a_fabric(monkeypatch):
    """Nine layers of F = B = 0.5 s, one for each device: three on a fabric, 1 s between them, and six without waits.

    The first three: 8 activations from 0.5 s on, then 7 F, 9 B and the last gradient over two boundaries. Both
    directions take 0.5 + 16 + 0.5, other rows less. Several labels a node would see more: played, it takes longer.
    """
    monkeypatch.setattr("stagecut.planner.solvers.exact.decision.WIDTHS", ())
    servers = (
        Server(name="shared", islands=(replace(ONE, count=3, fabric=Link(bandwidth_bytes_per_s=2.0), shared=True),)),
        Server(name="free", islands=(replace(ONE, count=6),)),
    )
    problem = Problem(
        model=chain(9, {"gpu": 1.0}, params_bytes=2.0, output_bytes=2.0),
        cluster=Cluster(name="two", device_types=kinds(gpu=1.0), servers=servers),
        job=job(4, schedule=Schedule.EAGER_ONE_F_ONE_B, optimizer=WEIGHTS_ONLY),
    )
    check_least_in_time(problem, 0.5 + 8 + 7 * 0.5 + 9 * 0.5 + 2.0)


def on_a_fabric_and_off(near_s, far_s, *, between_s, micro_batches):
    """Layers with these F = B, one for each device: some on a fabric, with messages of `between_s`, then others."""
    fabric = Link(bandwidth_bytes_per_s=1.0)
    islands = {
        "near": Island(device_type="near", count=len(near_s), fabric=fabric, shared=True),
        "far": Island(device_type="far", count=len(far_s)),
    }
    never = 1000.0  # elsewhere
    times = [{"near": 2 * time, "far": never} for time in near_s] + [{"near": never, "far": 2 * time} for time in far_s]
    layers = (
        layer(f"layer-{index}", names, params_bytes=2.0, output_bytes=between_s) for index, names in enumerate(times)
    )
    return Problem(
        model=replace(chain(1, {"near": 1.0, "far": 1.0}), layers=tuple(layers)),
        cluster=Cluster(
            name="two",
            device_types=kinds(near=1.0, far=1.0),
            servers=tuple(Server(name=name, islands=(island,)) for name, island in islands.items()),
        ),
        job=job(micro_batches, schedule=Schedule.EAGER_ONE_F_ONE_B, optimizer=WEIGHTS_ONLY),
    )


def test_labels_see_warm_up_forwards_queue_on_a_fabric():
    """Four stages on the fabric and five others.

    Before the first backward of the sixth, 7 activations come from 2 s on over each of three boundaries, then 2, 1 and
    1 s of forwards and the backward. The last forward follows, and of the 7 gradients after it one each 2 s. Both
    directions take 2 + 8 x 6 + 2.
    """
    problem = on_a_fabric_and_off([2.0] * 4, [1.0] * 5, between_s=1.0, micro_batches=8)
    check_least_in_time(problem, 2 + 7 * 3 + 2 + 1 + 1 + 1 + 1 + 1 + 12 + 6 * 2.0)


def test_paths_left_have_played_their_first_forwards():
    """Three stages on the fabric and two others.

    All four micro-batches are ready for the fabric before the first is so again, which leaves it at 1 + 4 x 2 + 2. It
    runs on two stages, the last one works 4 x 4 s, and the way home is 2 + 3 + 2 x 2. Labels ask for 34 s.
    """
    problem = on_a_fabric_and_off([1.0] * 3, [2.0] * 2, between_s=2.0, micro_batches=4)
    decision = Decision(build_rows(with_positions(build_network(CostModel(problem), problem.variants[0]))))
    least_s = 11 + 1 + 2 + 4 * 4 + 2 + 3 + 2 * 2.0
    for limit_s, num_left in ((least_s * SLACK, 1), (least_s / SLACK, 0), (34.0 * SLACK, 0)):
        assert decision.path_below(limit_s) is not None
        assert len(decision.paths_below(most_steps=1000, most_paths=2)) == num_left


def test_labels_see_the_loops_of_all_stages():
    """Six layers of 3 s on six devices that hold one each, half a second between them, 96 micro-batches.

    The first micro-batch comes back after 6 x 3 + 5 x 2 x 0.5 = 23 s. Loops over all stages carry six micro-batches in
    23 s: 14 of them, and one over five stages, 5 x 3 + 4 = 19 s, before the last forward, and its round trip:
    23 + 14 x 23 + 19 + 23 = 387.
    """
    problem = Problem(
        model=chain(6, {"gpu": 3.0}, params_bytes=2.0, output_bytes=1.0),
        cluster=one_device_per_server(*["gpu"] * 6, network=Link(bandwidth_bytes_per_s=2.0), memory_bytes=1.0),
        job=job(96, optimizer=WEIGHTS_ONLY),
    )
    network = build_network(CostModel(problem), problem.variants[0])
    for chosen in (network, with_positions(network)):
        decision = Decision(build_rows(chosen))
        assert decision.path_below(387.0 * SLACK) is not None
        assert decision.path_below(387.0 * 0.997) is None


def test_labels_see_the_loops_of_eager_stages():
    """Two layers of 3 s on two devices that hold one each, 2 s between them, 96 micro-batches.

    The first micro-batch comes back after 2 x 3 + 2 x 2 = 10 s. Such loops carry three micro-batches: before the last
    forward there are 30, and two micro-batches on the first device alone, and then the round trip of the last one:
    10 + 30 x 10 + 2 x 3 + 10 = 326.
    """
    problem = Problem(
        model=chain(2, {"gpu": 3.0}, params_bytes=2.0, output_bytes=4.0),
        cluster=one_device_per_server("gpu", "gpu", network=Link(bandwidth_bytes_per_s=2.0), memory_bytes=1.0),
        job=job(96, optimizer=WEIGHTS_ONLY, schedule=Schedule.EAGER_ONE_F_ONE_B),
    )
    network = build_network(CostModel(problem), problem.variants[0])
    for chosen in (network, with_positions(network)):
        decision = Decision(build_rows(chosen))
        assert decision.path_below(326.0 * SLACK) is not None
        assert decision.path_below(326.0 * 0.997) is None


def chain_of(sizes):
    """A layer for each F = B in seconds, bytes of parameters and of the output."""
    layers = (
        layer(f"layer-{index}", {"gpu": 2.0 * time}, params_bytes=float(params), output_bytes=float(output))
        for index, (time, params, output) in enumerate(sizes)
    )
    return replace(chain(1, {"gpu": 1.0}), layers=tuple(layers))


def test_labels_keep_the_loops_of_a_path_with_its_way_home():
    """Two pipelines of a host with four devices, all-reduces on its interface, seven micro-batches.

    The rows of two plans are at or below 73 s. With the least way home and the least loops to a node apart, which may
    be those of two paths, three more arcs are left than these plans have.
    """
    server = Server(
        name="host",
        count=2,
        islands=(replace(ONE, count=4, fabric=Link(bandwidth_bytes_per_s=2.0)),),
        nic=Link(bandwidth_bytes_per_s=4.0),
    )
    sizes = ((3, 8, 2), (2, 16, 4), (1, 8, 2), (1, 24, 4), (2, 0, 0), (2, 0, 4))
    problem = Problem(
        model=chain_of(sizes),
        cluster=Cluster(name="hosts", device_types=kinds(gpu=np.inf), servers=(server,)),
        job=job(14, optimizer=GRADIENTS, pipelines=(2,), replicas=(1,), tensor_parallel=(1,)),
    )
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    in_time = [path for plan, path in paths_by_plan(network).items() if lower_bound(costs.plan(plan)) <= 73.0 * SLACK]
    assert len(in_time) == 2
    found = Decision(build_rows(network)).path_below(73.0 * SLACK)
    assert set(np.flatnonzero(found.possible)) == set(np.concatenate(in_time))


def test_labels_divide_the_ways_to_a_node_by_the_way_home():
    """Replicas of a host queue for its fabric: short ways there have long ways home.

    The rows of all plans are at 126 s or above. With one label for all ways to a node, which has the least of each
    length, a path is found at 124 s.
    """
    fabric = Link(bandwidth_bytes_per_s=4.0)
    server = Server(name="host", count=2, islands=(replace(ONE, count=4, fabric=fabric, shared=True),), nic=fabric)
    sizes = ((3, 8, 2), (2, 40, 4), (1, 16, 4), (4, 0, 4), (1, 24, 2), (1, 32, 4))
    problem = Problem(
        model=chain_of(sizes),
        cluster=Cluster(name="hosts", device_types=kinds(gpu=np.inf), servers=(server,)),
        job=job(10, micro_batch=2, optimizer=GRADIENTS, replicas=(1, 2), tensor_parallel=(1,)),
    )
    costs = CostModel(problem)
    network = with_positions(build_network(costs, problem.variants[0]))
    assert min(lower_bound(costs.plan(plan)) for plan in paths_by_plan(network)) == 126.0
    decision = Decision(build_rows(network))
    assert decision.path_below(125.0) is None
    assert decision.path_below(126.0 * SLACK) is not None


@settings(max_examples=50)
@given(problems(max_layers=5, max_devices=4, max_micro_batches=5))
def test_shared_rows_are_decided_exactly(problem):
    """A path is found at the optimum of the shared rows, and none just below it."""
    costs = CostModel(problem)
    least = least_bounds(problem, costs, SHARED_FAMILIES)
    assume(least)
    for variant, value_s in least.items():
        decision = Decision(build_rows(with_positions(build_network(costs, variant)), shared_only=True))
        assert decision.path_below(value_s * SLACK) is not None
        if value_s > 0:
            assert decision.path_below(value_s * (1 - 1e-6)) is None


@settings(max_examples=35)
@given(problems(max_layers=4, max_devices=4, max_micro_batches=5), st.integers(0, 2**32 - 1))
def test_no_arc_of_a_plan_below_the_limit_is_impossible(problem, seed):
    """The limit is drawn from the bounds of all plans. The bottlenecks of the plans reach the floor."""
    random, costs = np.random.default_rng(seed), CostModel(problem)
    network = build_network(costs, problem.variants[-1])
    for chosen in (network, with_positions(network)):
        bounds = {plan: lower_bound(costs.plan(plan)) for plan in paths_by_plan(chosen)}
        assume(bounds)
        rows, limit_s = build_rows(chosen), random.choice(list(bounds.values())) * SLACK
        decision = Decision(rows)
        found = decision.path_below(limit_s)
        floored = rows.with_floor(decision.bottleneck_floor(limit_s, 0.0, decision.bottleneck_of(found.path)))
        for plan, arcs in paths_by_plan(chosen).items():
            if bounds[plan] <= limit_s:
                assert found.possible[arcs].all()
                assert floored.value(arcs) <= bounds[plan] * SLACK
