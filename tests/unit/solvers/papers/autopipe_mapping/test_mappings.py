"""Which mappings are examined."""

from hypothesis import given, settings

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.solvers.heuristic.allocation_graph import MOST_ORDERS
from stagecut.planner.solvers.heuristic.moves import groups_of
from stagecut.planner.solvers.papers.autopipe_mapping.mappings import (
    host_orders,
    host_runs,
    neighbours,
    stages_per_island,
    start_mappings,
)
from tests.catalogue import INFINITE, chain, job, kinds
from tests.property.strategies import problems


def _problem(*counts, layers=12, micro_batch=4, hosts=1):
    """One server class for each count of devices, with so many hosts."""
    servers = tuple(
        Server(name=f"s{index}", count=hosts, islands=(Island(device_type="gpu", count=count),))
        for index, count in enumerate(counts)
    )
    cluster = Cluster(name="c", device_types=kinds(gpu=INFINITE), servers=servers)
    return Problem(model=chain(layers, {"gpu": 1.0}), cluster=cluster, job=job(4, micro_batch=micro_batch))


def _words(mapping):
    """Class, stages and replicas of every run."""
    return [(run[0].server_class, len(run), run[0].replicas) for run in mapping]


def test_every_shape_comes_with_every_order():
    """Two servers of 4 devices, 4 samples: 4 stages of 1, 2 of 2 or 1 of 4 replicas on each, in both orders."""
    problem = _problem(4, 4)
    found = {tuple(_words(mapping)) for mapping in start_mappings(problem, problem.cluster, 4)}
    shapes = [(4, 1), (2, 2), (1, 4)]
    assert found == {tuple((server, *shape) for server in order) for shape in shapes for order in ((0, 1), (1, 0))}


def test_one_stage_on_several_whole_hosts_is_a_shape():
    """Two hosts of two devices hold 4 replicas."""
    problem = _problem(2, hosts=2)
    found = list(start_mappings(problem, problem.cluster, 4))
    whole = Placement(server_class=0, island=0, num_hosts=2, replicas=4)
    assert ((whole,),) in found


def test_a_pipeline_ends_where_the_layers_end():
    """8 devices on two servers, 5 layers: 4 stages on the first server and 1 on the second."""
    problem = _problem(4, 4, layers=5, micro_batch=1)
    assert {tuple(map(len, m)) for m in start_mappings(problem, problem.cluster, 1)} == {(4, 1)}


def test_orders_are_all_orders_while_these_are_few():
    """4! / (2! 2!) = 6 of two classes of two hosts; 20 hosts of two classes come in blocks."""
    assert len(set(host_orders([2, 2]))) == len(host_orders([2, 2])) == 6
    assert host_orders([10, 10]) == [(0,) * 10 + (1,) * 10, (1,) * 10 + (0,) * 10]
    assert host_orders([0, 0]) == []
    assert len(host_orders([1, 1, 1, 1])) == 24 == MOST_ORDERS
    assert len(host_orders([1] * 5)) == 2


def test_islands_are_used_in_either_order_or_alone():
    """2 + 1 devices: 2 then 1, 1 then 2, 1 or 2 stages on the first island, 1 on the second."""
    islands = (Island(device_type="gpu", count=2), Island(device_type="gpu", count=1))
    cluster = Cluster(name="c", device_types=kinds(gpu=INFINITE), servers=(Server(name="s", islands=islands),))
    problem = Problem(model=chain(4, {"gpu": 1.0}), cluster=cluster, job=job(2))
    (runs,) = host_runs(problem, cluster, 1)
    assert {tuple(p.island for p in run) for run in runs} == {(0, 0, 1), (1, 0, 0), (0, 0), (0,), (1,)}
    assert set(map(stages_per_island, runs)) == {(2, 1), (1, 2), (2,), (1,)}
    assert len(runs[0]) == 3


def test_neighbours_exchange_leave_out_put_in_and_reshape():
    """With two of three single devices in use: the exchange, either one left out, the third one in three places."""
    problem = _problem(1, 1, 1, micro_batch=1)
    mapping = next(iter(start_mappings(problem, problem.cluster, 1)))[:2]
    orders = [tuple(run[0].server_class for run in near) for near in neighbours(problem, problem.cluster, mapping, 1)]
    assert sorted(orders) == sorted([(1, 0), (0,), (1,), (2, 0, 1), (0, 2, 1), (0, 1, 2)])


def test_of_equal_runs_in_a_row_only_the_ends_are_touched():
    """Ten hosts of a class: leaving any one out is the same mapping."""
    problem = _problem(1, layers=10, micro_batch=1, hosts=10)
    mapping = next(iter(start_mappings(problem, problem.cluster, 1)))
    near = list(neighbours(problem, problem.cluster, mapping, 1))
    assert [len(groups_of(each)) for each in near] == [9, 9]


@settings(max_examples=60)
@given(problems(max_layers=6))
def test_all_mappings_fit_in_the_cluster(problem):
    """Start mappings, and neighbours of the first of them."""
    costs = CostModel(problem)
    for variant in problem.variants:
        cluster = costs.of(variant.share).cluster
        starts = list(start_mappings(problem, cluster, variant.micro_batch))
        near = [n for start in starts[:1] for n in neighbours(problem, cluster, start, variant.micro_batch)]
        for mapping in (*starts, *near):
            assert 1 <= len(groups_of(mapping)) <= problem.model.num_layers
            assert name_devices(cluster, groups_of(mapping)) is not None
