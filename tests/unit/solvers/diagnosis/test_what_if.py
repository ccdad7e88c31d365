"""Problems with one more unit of something."""

import math
from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import AllReduceTable, Cluster, Island, Link, NetworkOverride, Server
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.simulator.engine import iteration_times
from stagecut.planner.solvers.diagnosis.extra_units import Unit, plan_in, what_ifs, with_one_more_server
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import CATALOGUE, chain, job, kinds, one_device_per_server, one_server

SLOW = Link(bandwidth_bytes_per_s=4.0)


def pair(*names, nic=SLOW, fabric=SLOW, overrides=()):
    """A server of one device for each name."""
    island = Island(device_type="gpu", count=1, fabric=fabric)
    servers = tuple(Server(name=name, islands=(island,), nic=nic) for name in names)
    return Cluster(name="pair", device_types=kinds(gpu=100.0), servers=servers, overrides=overrides)


def problem_on(cluster):
    return Problem(model=chain(4, {"gpu": 2.0}, output_bytes=1.0), cluster=cluster, job=job(4))


def time_of(problem, plan):
    costs = CostModel(problem)
    assert faults(costs, plan) == ()
    return float(iteration_times([costs.plan(plan)])[0])


def test_there_is_one_more_of_each_unit():
    found = {(item.unit, item.name): item.problem.cluster for item in what_ifs(problem_on(pair("a", "b")))}
    servers, memory, nic, fabric = [*found.values()][:2], *[*found.values()][2:]
    assert [[server.count for server in cluster.servers] for cluster in servers] == [[2, 1], [1, 2]]
    assert memory.device_types[0].memory_bytes == pytest.approx(110.0)
    assert {server.nic.bandwidth_bytes_per_s for server in nic.servers} == {8.0}
    assert {server.islands[0].fabric.bandwidth_bytes_per_s for server in fabric.servers} == {8.0}
    assert [unit for unit, _ in found] == [Unit.SERVER, Unit.SERVER, Unit.MEMORY, Unit.NIC, Unit.FABRIC]


def test_only_the_units_asked_for_are_tried():
    assert [item.unit for item in what_ifs(problem_on(pair("a")), (Unit.NIC,))] == [Unit.NIC]


def test_what_is_unlimited_is_left_out():
    problem = Problem(model=chain(3, {"gpu": 2.0}), cluster=one_device_per_server("gpu"), job=job(4))
    assert [item.unit for item in what_ifs(problem)] == [Unit.SERVER]


def test_measured_ways_are_twice_as_fast_where_interfaces_or_fabrics_are():
    """2 n bytes take what n bytes took; a path between hosts includes the interfaces, a link does not."""
    path = Link(bandwidth_bytes_per_s=1.0, table=((2.0, 1.0), (4.0, 2.0)))
    all_reduce = (AllReduceTable(num_devices=2, table=((2.0, 3.0), (4.0, 5.0))),)
    server = Server(name="a", islands=(Island(device_type="gpu", count=2, fabric=path, all_reduce=all_reduce),))
    overrides = (NetworkOverride(servers=("a", "a"), link=SLOW),)
    cluster = Cluster(
        name="measured", device_types=kinds(gpu=1.0), servers=(server,), network=path, overrides=overrides
    )
    nic, fabric = (item.problem.cluster for item in what_ifs(problem_on(cluster), (Unit.NIC, Unit.FABRIC)))
    assert (nic.network.table, nic.network_between(0, 0)) == (((4.0, 1.0), (8.0, 2.0)), SLOW)
    assert nic.servers == cluster.servers
    (island,) = fabric.servers[0].islands
    assert (island.fabric.table, island.all_reduce[0].table) == (((4.0, 1.0), (8.0, 2.0)), ((4.0, 3.0), (8.0, 5.0)))
    assert fabric.network == path


def test_class_whose_host_names_would_be_taken_gets_another_name():
    """Two hosts of class `a` would be `a-0` and `a-1`."""
    override = NetworkOverride(servers=("a", "a-1"), link=SLOW)
    grown = with_one_more_server(pair("a", "a-1", overrides=(override,)), 0)
    assert [server.name for server in grown.servers] == ["a+", "a-1"]
    assert grown.network_between(0, 1) == SLOW
    assert grown.num_devices == 3


def test_plan_moves_to_the_new_names_of_its_hosts():
    problem = problem_on(pair("a", "b"))
    plan = run(problem, "brute-force", SolveOptions()).plan
    grown = replace(problem, cluster=with_one_more_server(problem.cluster, 0))
    moved = plan_in(grown, problem, plan)
    assert {name for stage in plan.stages for name in stage.devices} == {"a/0", "b/0"}
    assert {name for stage in moved.stages for name in stage.devices} == {"a-0/0", "b/0"}
    assert time_of(grown, moved) == time_of(problem, plan)


def test_stage_that_fits_now_recomputes_no_more():
    """Three layers keep 12 bytes of 11, and of 12.1 with 10 % more."""
    model = chain(3, {"gpu": 2.0}, saved_bytes=4.0, output_bytes=1.0)
    problem = Problem(model=model, cluster=one_server("gpu", 1, memory_bytes=11.0), job=job(2))
    plan = run(problem, "brute-force", SolveOptions()).plan
    (more,) = what_ifs(problem, (Unit.MEMORY,))
    moved = plan_in(more.problem, problem, plan)
    assert [stage.recompute for stage in (*plan.stages, *moved.stages)] == [True, False]
    assert time_of(more.problem, moved) < time_of(problem, plan)


def test_plan_outside_the_search_space_is_not_moved():
    problem = problem_on(pair("a", "b"))
    plan = run(problem, "brute-force", SolveOptions()).plan
    (faster,) = what_ifs(problem, (Unit.NIC,))
    assert plan_in(faster.problem, replace(problem, job=job(5)), plan) is None


@pytest.mark.parametrize("known", [known for known in CATALOGUE if known.optimum_s], ids=lambda known: known.name)
def test_one_more_unit_never_hurts(known):
    plan = run(known.problem, "brute-force", SolveOptions()).plan
    for item in what_ifs(known.problem):
        start = plan_in(item.problem, known.problem, plan)
        result = run(item.problem, "greedy", SolveOptions(), start=start)
        assert result.objective_s <= known.optimum_s
        assert math.isfinite(result.objective_s)
