"""All devices in equal groups."""

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.solvers.papers.uniform.cluster import uniform_cluster
from tests.catalogue import INFINITE, chain, job, kinds


def _problem(*servers, **choices):
    """Servers given as (number of hosts, devices of each)."""
    made = tuple(
        Server(name=f"s{index}", count=count, islands=(Island(device_type="gpu", count=size),))
        for index, (count, size) in enumerate(servers)
    )
    cluster = Cluster(name="made", device_types=kinds(gpu=INFINITE), servers=made)
    return Problem(model=chain(6, {"gpu": 1.0}, tensor_parallel_bytes=0.0), cluster=cluster, job=job(4, **choices))


def _groups(problem, degrees, most_stages=6):
    """Replicas, degree and stages."""
    (variant,) = problem.variants
    uniform = uniform_cluster(CostModel(problem), "planner")

    def stops(num_stages):
        return [*range(1, num_stages), problem.model.num_layers]

    found = uniform.plans_on_all_devices(variant, stops, most_stages=most_stages, degrees=degrees)
    return [(plan.stages[0].replicas, plan.stages[0].tensor_parallel, len(plan.stages)) for plan in found]


def test_every_size_of_groups_that_takes_all_devices_is_met():
    """Two hosts of two devices, 4 samples: p x t x d = 4, t inside a host."""
    problem = _problem((2, 2), micro_batch=4)
    assert _groups(problem, (1,)) == [(1, 1, 4), (2, 1, 2), (4, 1, 1)]
    assert _groups(problem, (1, 2)) == [(1, 1, 4), (2, 1, 2), (4, 1, 1), (1, 2, 2), (2, 2, 1)]


def test_groups_that_leave_devices_idle_are_left_out():
    """Pairs do not fill hosts of three, though they divide six devices."""
    assert _groups(_problem((2, 3), micro_batch=2), (1,)) == [(1, 1, 6)]


def test_pipelines_with_too_many_stages_are_left_out():
    """Four stages of one device each are more than three."""
    assert _groups(_problem((2, 2), micro_batch=4), (1,), most_stages=3) == [(2, 1, 2), (4, 1, 1)]
