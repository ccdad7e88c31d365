"""The split that people do by hand."""

from dataclasses import replace

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import CATALOGUE, WEIGHTS_ONLY, chain, job, kinds, one_device_per_server, one_server


def _stages(problem):
    plan = run(problem, "even", SolveOptions()).plan
    return [(stage.stop - stage.start, *stage.devices) for stage in plan.stages]


def test_layer_counts_differ_by_at_most_one():
    """7 layers over 3 devices: boundaries at floor(7 / 3) and floor(14 / 3)."""
    problem = Problem(model=chain(7, {"gpu": 1.0}), cluster=one_server("gpu", 3), job=job(1))
    assert _stages(problem) == [(2, "host/0"), (2, "host/1"), (3, "host/2")]


def test_there_are_no_more_stages_than_layers():
    problem = Problem(model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 3), job=job(1))
    assert _stages(problem) == [(1, "host/0"), (1, "host/1")]


def test_hosts_are_filled_one_after_another():
    server = Server(name="host", count=2, islands=(Island(device_type="gpu", count=2),))
    cluster = Cluster(name="two", device_types=kinds(gpu=float("inf")), servers=(server,))
    stages = _stages(Problem(model=chain(4, {"gpu": 1.0}), cluster=cluster, job=job(1)))
    assert [devices for _, *devices in stages] == [["host-0/0"], ["host-0/1"], ["host-1/0"], ["host-1/1"]]


def test_fewer_stages_are_tried_where_memory_is_short():
    """The second device holds nothing, the first one everything."""
    cluster = one_device_per_server("large", "small")
    cluster = replace(cluster, device_types=kinds(large=100.0, small=1.0))
    model = chain(4, {"large": 1.0, "small": 1.0}, params_bytes=4.0)
    problem = Problem(model=model, cluster=cluster, job=job(1, optimizer=WEIGHTS_ONLY))
    assert _stages(problem) == [(4, "host-0/0")]


def test_smallest_allowed_replicas_are_used():
    """Replicas of 2 only: 5 devices make two groups."""
    problem = Problem(
        model=chain(2, {"gpu": 1.0}), cluster=one_server("gpu", 5), job=job(1, micro_batch=4, replicas=(4, 2))
    )
    assert _stages(problem) == [(1, "host/0", "host/1"), (1, "host/2", "host/3")]


def test_best_variant_is_returned():
    """M = 4 of 1 sample fills two equal stages in (4 + 1) x 2 s, M = 1 of 4 samples in 2 x 8 s."""
    problem = next(known.problem for known in CATALOGUE if known.name == "two equal devices, 1f1b")
    both = replace(problem, job=replace(problem.job, micro_batches=(4, 1)))
    result = run(both, "even", SolveOptions())
    assert result.plan.micro_batch == 1
    assert result.objective_s == 20.0


def test_chunks_of_equal_layer_counts_take_turns():
    """7 layers in 4 chunks on 2 devices: boundaries at floor(7 / 4), floor(14 / 4) and floor(21 / 4)."""
    problem = Problem(
        model=chain(7, {"gpu": 1.0}), cluster=one_server("gpu", 2), job=job(4, schedule=Schedule.INTERLEAVED)
    )
    assert _stages(problem) == [(1, "host/0"), (2, "host/1"), (2, "host/0"), (2, "host/1")]


def test_number_of_groups_that_take_turns_divides_that_of_micro_batches():
    problem = Problem(
        model=chain(8, {"gpu": 1.0}), cluster=one_server("gpu", 4), job=job(6, schedule=Schedule.INTERLEAVED)
    )
    assert [device for _, device in _stages(problem)] == ["host/0", "host/1", "host/2"] * 2
