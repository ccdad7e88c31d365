"""What exchanging updates costs, by hand: two workers of two stages, cut at layers 1 and 2 of 3.

Each layer has 10 parameters of 2 bytes; gradients have 4 bytes per parameter, so 40 bytes per layer. Links take 1 s per
100 bytes between hosts and no time inside a host.
"""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from stagecut.planner.core.cluster import AllReduceTable, Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer, WaveChoices
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.placement import DeviceGroup, Placement
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier
from stagecut.planner.cost.collectives import gradient_sync_of
from stagecut.planner.cost.waves.wave_all_reduces import wave_all_reduce
from stagecut.planner.cost.waves.wave_costs import WaveCostModel, crosses_hosts

TIMES = TimeTable(device_type="gpu", samples=(1,), forward_s=(1.0,), backward_s=(2.0,))


@pytest.fixture
def model():
    layers = tuple(Layer(name=str(i), params_bytes=20.0, output_bytes=7.0, times=(TIMES,)) for i in range(3))
    gpu = DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=1e9)
    nic = Link(bandwidth_bytes_per_s=100.0)
    pair = Server(name="pair", islands=(Island(device_type="gpu", count=2),), count=2, nic=nic)
    optimizer = Optimizer(name="bytes", weight_bytes=2.0, gradient_bytes=4.0, state_bytes=4.0)
    return WaveCostModel(
        Problem(
            model=ModelProfile(name="three", layers=layers),
            cluster=Cluster(name="small", device_types=(gpu,), servers=(pair,)),
            job=Job(global_batch=1, optimizer=optimizer, micro_batches=(1,), waves=WaveChoices()),
        )
    )


def worker(cut, first, second):
    stages = tuple(
        Stage(start=start, stop=stop, devices=(device,), warmup_depth=1, forward_micro_batch=1, backward_micro_batch=1)
        for start, stop, device in ((0, cut, first), (cut, 3, second))
    )
    return VirtualWorker(stages=stages, minibatch=1, in_flight=1, wave=1)


WORKERS = (worker(1, "pair-0/0", "pair-1/0"), worker(2, "pair-0/1", "pair-1/1"))
REDUCED = WavePlan(workers=WORKERS, carrier=Carrier.DELAYED_ALL_REDUCE)


def test_messages_between_stages_have_the_bytes_of_their_boundary(model):
    first, _ = model.plan(WavePlan(workers=WORKERS, owners=("pair-0",) * 3)).workers
    assert first.transfer_bytes.tolist() == [7.0]
    assert first.transfer_s.tolist() == [0.07]


def test_a_push_crosses_hosts_unless_the_server_is_at_home(model):
    first, _ = model.plan(WavePlan(workers=WORKERS, owners=("pair-0", "pair-0", "pair-1"))).workers
    (own,), (away, home) = first.exchanges
    assert [crosses_hosts(each.push_links) for each in (own, away, home)] == [False, True, False]
    assert [each.push_bytes for each in (own, away, home)] == [40.0] * 3
    assert [each.pull_bytes for each in (own, away, home)] == [20.0] * 3


def test_layers_without_weights_are_not_exchanged(model):
    """Layer 1 has none: its owner and its all-reduce have nothing to do."""
    layers = tuple(replace(layer, params_bytes=20.0 * (layer.name != "1")) for layer in model.problem.model.layers)
    problem = replace(model.problem, model=replace(model.problem.model, layers=layers))
    served, reduced = (
        WaveCostModel(problem).plan(plan)
        for plan in (WavePlan(workers=WORKERS, owners=("pair-0", "pair-1", "pair-0")), REDUCED)
    )
    assert [[each.owner for each in stage] for stage in served.workers[0].exchanges] == [["pair-0"], ["pair-0"]]
    assert [each.layers for each in reduced.all_reduces] == [(0, 1), (2, 3)]


def test_copies_of_tied_weights_are_exchanged_too(model):
    """Layer 2 holds a copy of 20 bytes beside its own 20: twice the gradients to push, and one more version of both."""
    layers = tuple(
        replace(layer, shared_params_bytes=20.0 * (layer.name == "2")) for layer in model.problem.model.layers
    )
    problem = replace(model.problem, model=replace(model.problem.model, layers=layers))
    _, second = WaveCostModel(problem).plan(WavePlan(workers=WORKERS, owners=("pair-0",) * 3)).workers
    assert [[each.push_bytes for each in stage] for stage in second.exchanges] == [[80.0], [80.0]]


def test_an_all_reduce_goes_round_the_holders_of_each_layer(model):
    """Layer 0 is held on pair-0 by both workers, layer 2 on pair-1: nothing crosses, no time. Layer 1 is held on pair-1
    by the first worker and on pair-0 by the second: each sends 2 x 1 halves of 40 bytes, in 0.2 s each.
    """
    costs = model.plan(REDUCED)
    assert [each.layers for each in costs.all_reduces] == [(0, 1), (1, 2), (2, 3)]
    assert [each.stages for each in costs.all_reduces] == [(0, 0), (1, 0), (1, 1)]
    assert [each.crossing_bytes for each in costs.all_reduces] == [0.0, 80.0, 0.0]
    assert [each.seconds for each in costs.all_reduces] == pytest.approx([0.0, 0.4, 0.0])
    assert [costs.all_reduce_s(worker).tolist() for worker in (0, 1)] == [[0.0, 0.4], [0.4, 0.0]]


def test_an_all_reduce_passes_each_interface_once_and_inside_a_host_its_fabric(model):
    """Four workers with a whole model on each device, numbered across the hosts: the ring goes pair-0/0, pair-0/1,
    pair-1/0, pair-1/1. 6 quarters of 120 bytes pass an interface, in 0.3 s each; two of four ways cross.
    """
    names = ("pair-0/0", "pair-1/0", "pair-0/1", "pair-1/1")
    workers = tuple(replace(WORKERS[0], stages=(replace(WORKERS[0].stages[0], stop=3, devices=(n,)),)) for n in names)
    (across,) = model.plan(replace(REDUCED, workers=workers)).all_reduces
    assert sorted(across.links) == ["pair-0:nic-in", "pair-0:nic-out", "pair-1:nic-in", "pair-1:nic-out"]
    assert (across.seconds, across.crossing_bytes) == (pytest.approx(1.8), 2 * 6 * 30.0)
    (inside,) = model.plan(replace(REDUCED, workers=(workers[0], workers[2]))).all_reduces
    assert (inside.seconds, inside.links, inside.crossing_bytes) == (0.0, (), 0.0)


@pytest.mark.parametrize("count", [2, 3])
def test_islands_of_a_host_sum_over_their_fabrics_and_the_bridge(model, count):
    """Two devices on a shared fabric of 40 bytes/s, and as many or one more on one of 80: of n devices each sends
    2 (n - 1) parts of 120 / n bytes in turn. Both of the first fabric at once have 20 bytes/s each; the bridge of 60 is
    passed there and back, at 30 each.
    """
    islands = (_island(40.0, 2), _island(80.0, count))
    pair = Server(name="pair", islands=islands, count=1, bridge=Link(bandwidth_bytes_per_s=60.0))
    cluster = replace(model.cluster, servers=(pair,))
    names = [f"pair/{number}" for number in (2, 0, 3, 1, 4)[: 2 + count]]
    workers = tuple(replace(WORKERS[0], stages=(replace(WORKERS[0].stages[0], stop=3, devices=(n,)),)) for n in names)
    (found,) = (
        WaveCostModel(replace(model.problem, cluster=cluster)).plan(replace(REDUCED, workers=workers)).all_reduces
    )
    num = 2 + count
    assert found.seconds == pytest.approx(2 * (num - 1) * (120 / num) / 20)
    assert sorted(found.links) == ["pair:bridge", "pair:fabric-0", "pair:fabric-1"]


def _island(bytes_per_s, count):
    return Island(device_type="gpu", count=count, fabric=Link(bandwidth_bytes_per_s=bytes_per_s), shared=True)


@given(
    num_hosts=st.integers(1, 3),
    count=st.integers(1, 4),
    fabric=st.sampled_from([50.0, 200.0]),
    latency_s=st.sampled_from([0.0, 0.5]),
    shared=st.booleans(),
    measured=st.booleans(),
)
def test_workers_alike_sum_as_fast_as_replicas(num_hosts, count, fabric, latency_s, shared, measured):
    """A worker on each device takes the time of a synchronous plan with a replica on each device."""
    assume(num_hosts * count > 1)
    table = AllReduceTable(num_devices=max(2, count), table=((10.0, 0.3), (1000.0, 2.0)))
    island = Island(
        device_type="gpu",
        count=count,
        fabric=Link(bandwidth_bytes_per_s=fabric, latency_s=latency_s),
        shared=shared,
        all_reduce=(table,) if measured and count > 1 else (),
    )
    server = Server(name="s", islands=(island,), count=num_hosts, nic=Link(bandwidth_bytes_per_s=100.0, latency_s=0.1))
    gpu = DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=1e9)
    cluster = Cluster(name="small", device_types=(gpu,), servers=(server,))
    groups = [
        DeviceGroup(placement=Placement(server_class=0, island=0), hosts=(host,))
        for _ in range(count)
        for host in range(num_hosts)
    ]
    found = wave_all_reduce(cluster, groups, num_bytes=120.0, layers=(0, 1), stages=(0,) * len(groups))
    replicas = Placement(server_class=0, island=0, num_hosts=num_hosts, replicas=num_hosts * count)
    expected = float(gradient_sync_of(cluster, replicas).seconds(np.array([120.0]))[0])
    assert found.seconds == pytest.approx(expected)


def test_a_single_worker_exchanges_nothing(model):
    for carrier, owners in ((Carrier.PARAMETER_SERVER, ("pair-0",) * 3), (Carrier.DELAYED_ALL_REDUCE, ())):
        costs = model.plan(WavePlan(workers=WORKERS[:1], carrier=carrier, owners=owners))
        assert costs.workers[0].exchanges == ((), ())
        assert costs.all_reduces == ()
        assert costs.all_reduce_s(0).tolist() == [0.0, 0.0]
