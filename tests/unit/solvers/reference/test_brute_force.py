"""The oracle: every plan of the search space."""

import threading
from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.solvers.reference.brute_force import BATCH, all_plans
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import INTERLEAVED, chain, job, kinds, one_device_per_server, one_server


def _shapes(problem):
    """Layer counts and devices of the stages of every plan."""
    return [tuple((stage.stop - stage.start, stage.devices) for stage in plan.stages) for plan in all_plans(problem)]


def test_two_different_servers_are_used_alone_and_in_both_orders():
    """3 layers: 2 plans of one stage; 2 orders x 2 cuts of two stages."""
    shapes = _shapes(Problem(model=chain(3, {"a": 1.0, "b": 1.0}), cluster=one_device_per_server("a", "b"), job=job(1)))
    assert sorted(shapes) == [
        ((1, ("host-0/0",)), (2, ("host-1/0",))),
        ((1, ("host-1/0",)), (2, ("host-0/0",))),
        ((2, ("host-0/0",)), (1, ("host-1/0",))),
        ((2, ("host-1/0",)), (1, ("host-0/0",))),
        ((3, ("host-0/0",)),),
        ((3, ("host-1/0",)),),
    ]


def test_equal_devices_are_not_told_apart():
    """3 devices of one island, 2 layers, any replicas: 1, 2 or 3 of them; or (1, 1), (1, 2), (2, 1)."""
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 3), job=job(1, micro_batch=6))
    counts = sorted(tuple(len(devices) for _, devices in shape) for shape in _shapes(problem))
    assert counts == [(1,), (1, 1), (1, 2), (2,), (2, 1), (3,)]


def test_replicas_must_divide_the_micro_batch():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_server("gpu", 4), job=job(1, micro_batch=4))
    assert sorted(len(devices) for ((_, devices),) in _shapes(problem)) == [1, 2, 4]


def test_several_hosts_are_taken_whole():
    """2 hosts of 2 devices, one layer: 1 or 2 devices of a host, or all 4."""
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="two", device_types=kinds(gpu=float("inf")), servers=(server,))
    shapes = _shapes(Problem(model=chain(1, {"gpu": 1.0}), cluster=cluster, job=job(1, micro_batch=4)))
    assert sorted(devices for ((_, devices),) in shapes) == [
        ("host-0/0",),
        ("host-0/0", "host-0/1"),
        ("host-0/0", "host-0/1", "host-1/0", "host-1/1"),
    ]


def test_a_host_and_its_islands_are_visited_once():
    """3 layers in 3 stages on islands x (2 devices) and y (1): x x y or y x x, never x y x."""
    islands = (Island(device_type="x", count=2), Island(device_type="y", count=1))
    cluster = Cluster(
        name="mixed",
        device_types=kinds(x=float("inf"), y=float("inf")),
        servers=(Server(name="host", islands=islands),),
    )
    shapes = _shapes(Problem(model=chain(3, {"x": 1.0, "y": 1.0}), cluster=cluster, job=job(1)))
    names = [tuple(device for _, (device,) in shape) for shape in shapes if len(shape) == 3]
    assert names == [("host/0", "host/1", "host/2"), ("host/2", "host/0", "host/1")]


def test_every_variant_is_enumerated():
    model, cluster = chain(1, {"gpu": 1.0}), one_device_per_server("gpu")
    both = replace(job(4), micro_batches=(1, 2, 3), schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B))
    plans = list(all_plans(Problem(model=model, cluster=cluster, job=both)))
    assert [(plan.schedule, plan.micro_batch, plan.num_microbatches) for plan in plans] == [
        (Schedule.GPIPE, 1, 4),
        (Schedule.GPIPE, 2, 2),
        (Schedule.ONE_F_ONE_B, 1, 4),
        (Schedule.ONE_F_ONE_B, 2, 2),
    ]


def test_devices_share_a_replica_in_powers_of_two():
    """4 devices, one layer, micro-batches of 2: 1 or 2 replicas of 1 or 2 devices, or one of 4."""
    model = chain(1, {"gpu": 1.0}, tensor_parallel_bytes=0.0)
    plans = all_plans(Problem(model=model, cluster=one_server("gpu", 4), job=job(1, micro_batch=2)))
    stages = [plan.stages[0] for plan in plans]
    assert sorted((stage.replicas, stage.tensor_parallel) for stage in stages) == [
        (1, 1),
        (1, 2),
        (1, 4),
        (2, 1),
        (2, 2),
    ]


def test_layers_that_cannot_be_shared_leave_nothing_to_choose():
    problem = Problem(model=chain(1, {"gpu": 1.0}), cluster=one_server("gpu", 4), job=job(1))
    assert [len(devices) for ((_, devices),) in _shapes(problem)] == [1]


HOST_PAIR = Cluster(
    name="two",
    device_types=kinds(gpu=float("inf")),
    servers=(Server(name="host", count=2, islands=(Island(device_type="gpu", count=2),)),),
)
"""Two hosts of two devices."""


def test_whole_hosts_keep_a_replica_on_one_host():
    """A stage on both hosts has 4 replicas of one device or 2 of two, never one of four."""
    model = chain(1, {"gpu": 1.0}, tensor_parallel_bytes=0.0)
    stages = [plan.stages[0] for plan in all_plans(Problem(model=model, cluster=HOST_PAIR, job=job(1, micro_batch=4)))]
    over_both = [stage for stage in stages if len(stage.devices) == 4]
    assert sorted((stage.replicas, stage.tensor_parallel) for stage in over_both) == [(2, 2), (4, 1)]


def test_pipelines_have_hosts_or_devices_of_their_own():
    """2 layers, 8 micro-batches of 1: two pipelines with a host each, or with a device of each host; or four."""
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=HOST_PAIR, job=job(8, pipelines=(2, 4)))
    found = [
        (plan.share.host_splits, plan.num_microbatches, [[s.devices for s in p.stages] for p in plan.pipelines])
        for plan in all_plans(problem)
    ]
    assert found == [
        ((2,), 4, [[("host-0/0",)], [("host-1/0",)]]),
        ((2,), 4, [[("host-0/0",), ("host-0/1",)], [("host-1/0",), ("host-1/1",)]]),
        ((1,), 4, [[("host-0/0",)], [("host-0/1",)]]),
        ((1,), 4, [[("host-0/0",), ("host-1/0",)], [("host-0/1",), ("host-1/1",)]]),
        ((2,), 2, [[("host-0/0",)], [("host-0/1",)], [("host-1/0",)], [("host-1/1",)]]),
    ]


def test_interleaved_stages_take_turns_on_equal_groups_that_fill_hosts():
    """4 layers, two chunks, 6 micro-batches: 1 or 2 groups of one device, 1 of three stages cannot be."""
    chosen = job(6, schedule=Schedule.INTERLEAVED)
    plans = list(all_plans(Problem(model=chain(4, {"gpu": 1.0}), cluster=HOST_PAIR, job=chosen)))
    groups = [tuple(stage.devices for stage in plan.stages) for plan in plans]
    first, second = ("host-0/0",), ("host-0/1",)
    assert groups == [(first, first)] * 3 + [(first, second, first, second)]
    assert [stage.warmup_depth for stage in plans[-1].stages] == list(
        warmup_depths(Schedule.INTERLEAVED, 4, 6, chunks=2)
    )


def test_interleaved_optimum_is_found():
    result = run(INTERLEAVED.problem, "brute-force", SolveOptions())
    assert (result.status, result.objective_s) == (Status.OPTIMAL, INTERLEAVED.optimum_s)


def test_interleaved_groups_divide_the_micro_batches():
    """Three micro-batches cannot be dealt out in groups of two."""
    problem = Problem(
        model=chain(4, {"gpu": 1.0}), cluster=HOST_PAIR, job=job(3, schedule=Schedule.INTERLEAVED, chunks=(1, 2))
    )
    sizes = sorted((plan.chunks, len(plan.stages) // plan.chunks) for plan in all_plans(problem))
    assert set(sizes) == {(1, 1), (1, 3), (2, 1)}


def test_interleaved_group_recomputes_as_a_whole_where_it_must():
    """One device, two stages of one layer that save 4 bytes, with up to two micro-batches in flight together: 8 bytes.

    Recomputed, the second keeps its input, 2 x 1 byte, and 4 bytes are there while a layer works: 6 or less.
    """
    model = chain(2, {"gpu": 1.0}, saved_bytes=4.0, output_bytes=1.0)
    chosen = job(4, schedule=Schedule.INTERLEAVED)
    modes = {}
    for memory_bytes in (100.0, 7.0, 3.0):
        problem = Problem(model=model, cluster=one_server("gpu", 1, memory_bytes=memory_bytes), job=chosen)
        modes[memory_bytes] = [[stage.recompute for stage in plan.stages] for plan in all_plans(problem)]
    assert modes == {100.0: [[False, False]], 7.0: [[True, True]], 3.0: []}


def test_long_model_is_refused():
    problem = Problem(model=chain(9, {"gpu": 1.0}), cluster=one_device_per_server("gpu"), job=job(1))
    with pytest.raises(UnsupportedError, match="9 layers, more than 8"):
        run(problem, "brute-force", SolveOptions())


def test_too_many_plans_are_refused():
    """8 different servers: 8! / 1! = 40,320 orders of 7 stages alone, x 7 cuts."""
    names = [f"kind{index}" for index in range(8)]
    model = chain(8, dict.fromkeys(names, 1.0))
    problem = Problem(model=model, cluster=one_device_per_server(*names), job=job(1))
    with pytest.raises(UnsupportedError, match="more than 200000 plans"):
        run(problem, "brute-force", SolveOptions())


def test_cancelled_search_keeps_its_plan_and_claims_nothing():
    """The event is set by the first improvement, in the first of two batches."""
    names = ["a", "b", "c", "d"]
    problem = Problem(model=chain(7, dict.fromkeys(names, 1.0)), cluster=one_device_per_server(*names), job=job(2))
    assert len(list(all_plans(problem))) > BATCH
    cancelled = threading.Event()
    result = run(problem, "brute-force", SolveOptions(), observer=lambda _: cancelled.set(), cancelled=cancelled)
    assert result.status is Status.INTERRUPTED
    assert result.plan is not None
    assert result.bound_s is None
