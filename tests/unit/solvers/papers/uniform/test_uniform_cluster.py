"""Real servers seen as equal ones, and plans for equal ones laid over the real ones."""

import math
from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.cluster import UNLIMITED, Cluster, Island, Link, NetworkOverride, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.model import ModelProfile
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import WHOLE
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.device_groups import name_devices
from stagecut.planner.solvers.papers.uniform.cluster import UniformGroup, uniform_cluster
from stagecut.planner.solvers.papers.uniform.variants import uniform_variants
from stagecut.planner.solvers.search.options import SolveOptions
from stagecut.planner.solvers.search.search import Search
from tests.catalogue import GRADIENTS, chain, job, kinds, layer


def _host(name, *types, size=2, count=1, fabric=UNLIMITED, **changes):
    """A server class with an island of `size` devices of every type."""
    islands = tuple(Island(device_type=kind, count=size, fabric=fabric) for kind in types)
    return Server(name=name, islands=islands, count=count, **changes)


def _problem(*servers, network=UNLIMITED, overrides=(), memory_bytes=(100.0, 60.0), **choices):
    """Fast and slow devices, 1 s and 3 s a layer; layers of 4 bytes of gradients that send 6 bytes."""
    fast_bytes, slow_bytes = memory_bytes
    layers = chain(4, {"fast": 1.0, "slow": 3.0}, params_bytes=8.0, saved_bytes=10.0, output_bytes=6.0).layers
    return Problem(
        model=ModelProfile(name="chain", layers=layers),
        cluster=Cluster(
            name="real",
            device_types=kinds(fast=fast_bytes, slow=slow_bytes),
            servers=servers,
            network=network,
            overrides=overrides,
        ),
        job=job(4, micro_batch=4, **({"optimizer": GRADIENTS} | choices)),
    )


def _uniform(problem, share=WHOLE):
    return uniform_cluster(CostModel(problem).of(share), "planner")


def _all_layers(uniform, group, **choices):
    start, stop = np.array([0]), np.array([4])
    return uniform.stage_costs(group, **({"micro_batch": 4, "recompute": False} | choices), start=start, stop=stop)


def _names(uniform, groups, **choices):
    placed = uniform.placements([UniformGroup(replicas=number) for number in groups], **choices)
    return None if placed is None else [list(names) for names in name_devices(uniform.costs.cluster, placed)]


def test_every_device_is_as_slow_as_the_slowest_and_has_the_least_memory():
    """4 samples x 4 layers x 3 s; the fast devices have less memory."""
    uniform = _uniform(_problem(_host("a", "fast"), _host("b", "slow"), memory_bytes=(50.0, 60.0)))
    cost = _all_layers(uniform, UniformGroup())
    assert (cost.forward_s + cost.backward_s).tolist() == [48.0]
    assert uniform.memory_bytes == 50.0
    assert (uniform.num_servers, uniform.devices_per_server, uniform.num_devices) == (2, 2, 4)


def test_links_are_the_slowest_of_each_kind():
    """Fabrics of 8 and 4 bytes/s; hosts of a class at 5, of two classes at 2 with 1 + 1 s of latency."""
    servers = (
        _host("a", "fast", fabric=Link(bandwidth_bytes_per_s=8.0, latency_s=0.5), count=2),
        _host("b", "fast", fabric=Link(bandwidth_bytes_per_s=4.0), nic=Link(bandwidth_bytes_per_s=9.0, latency_s=1.0)),
    )
    slow = NetworkOverride(servers=("a", "b"), link=Link(bandwidth_bytes_per_s=2.0, latency_s=1.0))
    uniform = _uniform(_problem(*servers, network=Link(bandwidth_bytes_per_s=5.0), overrides=(slow,)))
    assert uniform.inside == Link(bandwidth_bytes_per_s=4.0, latency_s=0.5)
    assert uniform.between == Link(bandwidth_bytes_per_s=2.0, latency_s=2.0)


def test_bridges_between_any_two_islands_count_as_ways_between_servers():
    """Three islands without a stated bridge: the slower fabric of each pair, 1 byte/s of the third island."""
    islands = tuple(
        Island(device_type="fast", count=2, fabric=Link(bandwidth_bytes_per_s=rate)) for rate in (4.0, 3.0, 1.0)
    )
    uniform = _uniform(_problem(Server(name="host", islands=islands)))
    assert uniform.between == Link(bandwidth_bytes_per_s=1.0)


def test_all_reduces_use_the_slowest_links_wherever_the_slowest_devices_are():
    """16 bytes. In a server 2 x 8 / 4 bytes/s; on both, a ring of 4: 2 x 3 x 4 / 2 bytes/s, though no class has two."""
    servers = (
        _host("a", "fast", fabric=Link(bandwidth_bytes_per_s=4.0)),
        _host("b", "slow", fabric=Link(bandwidth_bytes_per_s=8.0)),
    )
    uniform = _uniform(_problem(*servers, network=Link(bandwidth_bytes_per_s=2.0)))
    assert _all_layers(uniform, UniformGroup(replicas=2)).sync_s.tolist() == [4.0]
    assert _all_layers(uniform, UniformGroup(replicas=4)).sync_s.tolist() == [12.0]


def test_all_reduces_of_pipelines_on_other_hosts_cross_the_network():
    """Two pipelines of one host each, one replica each: 2 x 1 x 16 / 2 bytes at 2 bytes/s."""
    problem = _problem(_host("a", "fast", count=2), network=Link(bandwidth_bytes_per_s=2.0), pipelines=(2,))
    share = next(variant.share for variant in problem.variants if variant.share.host_splits == (2,))
    uniform = _uniform(problem, share)
    assert uniform.num_servers == 1
    assert _all_layers(uniform, UniformGroup()).sync_s.tolist() == [8.0]


@pytest.mark.parametrize("replicas, num_hosts", [(1, 1), (2, 1), (4, 2)])
def test_equal_servers_cost_what_they_really_cost(replicas, num_hosts):
    fabric, network = Link(bandwidth_bytes_per_s=3.0, latency_s=0.25), Link(bandwidth_bytes_per_s=2.0, latency_s=0.5)
    problem = _problem(_host("a", "fast", count=2, fabric=fabric), network=network)
    costs, uniform = CostModel(problem), _uniform(problem)
    placement = Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=replicas)
    real = costs.stage(placement, micro_batch=4, recompute=True, start=0, stop=4)
    equal = _all_layers(uniform, UniformGroup(replicas=replicas), recompute=True)
    for name in ("forward_s", "backward_s", "sync_s", "update_s", "static_bytes", "saved_bytes", "working_bytes"):
        assert getattr(equal, name).tolist() == getattr(real, name).tolist()


def test_groups_fill_one_server_after_another():
    """Servers are filled in the cluster's order; the rest of a server is skipped if the next group needs more."""
    uniform = _uniform(_problem(_host("a", "fast"), _host("b", "slow", count=2)))
    assert _names(uniform, (1, 1, 1)) == [["a/0"], ["a/1"], ["b-0/0"]]
    assert _names(uniform, (1, 2, 1)) == [["a/0"], ["b-0/0", "b-0/1"], ["b-1/0"]]
    assert _names(uniform, (2, 2, 1, 2)) is None


def test_group_begins_a_server_where_it_is_told_to():
    uniform = _uniform(_problem(_host("a", "fast"), _host("b", "slow", count=2)))
    assert _names(uniform, (1, 1, 1), opens=(True, True, False)) == [["a/0"], ["b-0/0"], ["b-0/1"]]


def test_group_of_several_servers_takes_whole_hosts_of_one_class():
    """The first server is passed over, since it has no second one of its class."""
    uniform = _uniform(_problem(_host("a", "fast"), _host("b", "slow", count=2)))
    assert _names(uniform, (4,)) == [["b-0/0", "b-0/1", "b-1/0", "b-1/1"]]
    assert _names(uniform, (1, 4)) == [["a/0"], ["b-0/0", "b-0/1", "b-1/0", "b-1/1"]]
    assert _names(uniform, (4, 1)) is None
    assert uniform.most_servers_per_stage == 1


def test_islands_of_a_host_are_servers_that_no_stage_can_span():
    """Two hosts of two islands; the second island does not open a host."""
    uniform = _uniform(_problem(_host("a", "fast", "slow", count=2)))
    assert _names(uniform, (2, 1, 1)) == [["a-0/0", "a-0/1"], ["a-0/2"], ["a-0/3"]]
    assert _names(uniform, (2, 2, 2)) == [["a-0/0", "a-0/1"], ["a-0/2", "a-0/3"], ["a-1/0", "a-1/1"]]
    assert [group.opens for group in uniform.placements([UniformGroup(replicas=2)] * 3)] == [True, False, True]
    assert _names(uniform, (4,)) is None


def test_group_larger_than_a_server_must_take_whole_ones():
    uniform = _uniform(_problem(_host("a", "fast", count=2)))
    with pytest.raises(ValueError, match="neither part of a server of 2 nor whole servers"):
        uniform.stage_costs(
            UniformGroup(replicas=3), micro_batch=3, recompute=False, start=np.array([0]), stop=np.array([1])
        )


def test_replicas_divide_the_micro_batch_and_fill_servers():
    """With 12 samples and servers of 3: neither 5 .. 8, which are not whole servers or do not divide 12, nor 9."""
    uniform = _uniform(_problem(_host("a", "fast", size=3, count=4)))
    assert uniform.replicas(12) == (1, 2, 3, 6, 12)


def test_each_replica_of_a_group_on_whole_servers_is_inside_one():
    """Two servers of 3 devices, 6 samples, degrees 1 and 2.

    3 replicas of 2 devices are as many as both servers have, but one would lie across them; 2 of 2 are neither part
    of a server nor whole ones.
    """
    problem = _problem(_host("a", "fast", size=3, count=2))
    problem = replace(problem, model=chain(4, {"fast": 1.0, "slow": 3.0}, tensor_parallel_bytes=0.0))
    groups = [(group.replicas, group.tensor_parallel) for group in _uniform(problem).groups(6)]
    assert groups == [(1, 1), (2, 1), (3, 1), (6, 1), (1, 2)]


def test_plan_is_laid_over_the_real_servers():
    uniform = _uniform(_problem(_host("a", "fast"), _host("b", "slow"), memory_bytes=(math.inf, math.inf)))
    (variant,) = uniform.costs.problem.variants
    plan = uniform.plan(variant, (1, 4), [UniformGroup(replicas=2), UniformGroup()])
    assert [(stage.stop, stage.devices) for stage in plan.stages] == [(1, ("a/0", "a/1")), (4, ("b/0",))]
    assert uniform.plan(variant, (1, 2, 4), [UniformGroup(replicas=2)] * 3) is None


def test_intervals_fit_in_the_first_mode_that_the_job_allows():
    """A layer: 4 bytes of gradients; 40 saved, or the 24 of its input (none for the first) and the layer's 40 on top.

    60 bytes, two micro-batches in flight: [0, 1) needs 4 + 80, or 4 + 40; [1, 2) 4 + 80, or 4 + 48 + 40.
    """
    uniform = _uniform(_problem(_host("a", "fast", count=2), memory_bytes=(60.0, 60.0)))
    (variant,) = uniform.costs.problem.variants
    intervals = uniform.intervals(variant, UniformGroup())
    alone, two = intervals.fitting(1), intervals.fitting(2)
    assert (np.isfinite(alone.work_s[1, 2]), alone.recompute[1, 2]) == (True, False)
    assert (np.isfinite(two.work_s[0, 1]), two.recompute[0, 1], np.isfinite(two.work_s[1, 2])) == (True, True, False)
    assert (alone.backward_s[0, 1], two.backward_s[0, 1]) == (2.0, 4.0)
    assert (two.forward_s[1, 2], two.sync_s[1, 2]) == (math.inf, math.inf)
    assert np.isinf(alone.work_s[np.tril_indices(5)]).all()


def test_intervals_are_those_of_single_stages():
    """Every one of them, without recomputation, as the cost model has it stage by stage."""
    problem = _problem(_host("a", "fast", count=2), memory_bytes=(math.inf, math.inf))
    layers = tuple(layer(f"layer-{index}", {"fast": 1.0 + index}, params_bytes=2.0 * index) for index in range(4))
    uniform = _uniform(replace(problem, model=ModelProfile(name="rising", layers=layers)))
    (variant,) = uniform.costs.problem.variants
    fitting = uniform.intervals(variant, UniformGroup(replicas=2)).fitting(1)
    for start in range(4):
        for stop in range(start + 1, 5):
            cost = uniform.costs.stage(
                Placement(server_class=0, island=0, replicas=2), micro_batch=4, recompute=False, start=start, stop=stop
            )
            assert fitting.forward_s[start, stop] == cost.forward_s[0]
            assert fitting.sync_s[start, stop] == cost.sync_s[0]


def test_unequal_servers_are_refused():
    with pytest.raises(UnsupportedError, match="one kind, but those of cluster 'real' have 1, 2; use"):
        _uniform(_problem(_host("a", "fast", size=1), _host("b", "fast", size=2)))


def test_variants_of_few_devices_come_first():
    """Pipelines of 1, 2 and 4 devices; the two ways to have two pipelines are a host each, or a device of each host."""
    search = Search(_problem(_host("a", "fast", count=2), pipelines=(1, 2, 4)), SolveOptions())
    found = uniform_variants(search, "planner", schedules=(Schedule.ONE_F_ONE_B,))
    assert [(variant.share.num_pipelines, uniform.num_servers) for variant, uniform in found] == [
        (4, 1),
        (2, 1),
        (2, 2),
        (1, 2),
    ]


def test_shares_with_unequal_servers_are_passed_over():
    """Two hosts of one device and one of two: equal for one of two pipelines, which has a device of either class."""
    problem = _problem(_host("a", "fast", count=2, size=1), _host("b", "fast", size=2), pipelines=(1, 2))
    found = uniform_variants(Search(problem, SolveOptions()), "planner", schedules=(Schedule.ONE_F_ONE_B,))
    assert [(variant.share.num_pipelines, uniform.num_devices) for variant, uniform in found] == [(2, 2)]


def test_jobs_with_none_of_the_schedules_are_refused():
    search = Search(_problem(_host("a", "fast")), SolveOptions())
    with pytest.raises(UnsupportedError, match="supports only schedule gpipe, but the job allows 1f1b; allow gpipe"):
        uniform_variants(search, "planner", schedules=(Schedule.GPIPE,))
