"""What exchanging updates costs, by hand: two workers of two stages, cut at layers 1 and 2 of 3.

Each layer has 10 parameters of 2 bytes; gradients have 4 bytes per parameter, so 40 bytes per layer. Links take 1 s per
100 bytes between hosts and no time inside a host.
"""

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer, WaveChoices
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier
from stagecut.planner.cost.wave_costs import WaveCostModel, crosses_hosts

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


def test_an_all_reduce_goes_round_the_holders_of_each_layer(model):
    """Layer 0 is held on pair-0 by both workers, layer 2 on pair-1: nothing crosses, no time. Layer 1 is held on pair-1
    by the first worker and on pair-0 by the second: each sends 2 x 1 halves of 40 bytes, in 0.2 s each.
    """
    costs = model.plan(WavePlan(workers=WORKERS, carrier=Carrier.DELAYED_ALL_REDUCE)).workers
    assert [own.all_reduce_bytes.tolist() for own in costs] == [[0.0, 40.0], [40.0, 0.0]]
    assert np.array([own.all_reduce_s for own in costs]) == pytest.approx(np.array([[0.0, 0.4], [0.4, 0.0]]))


def test_a_single_worker_exchanges_nothing(model):
    for carrier, owners in ((Carrier.PARAMETER_SERVER, ("pair-0",) * 3), (Carrier.DELAYED_ALL_REDUCE, ())):
        (own,) = model.plan(WavePlan(workers=WORKERS[:1], carrier=carrier, owners=owners)).workers
        assert own.exchanges == ((), ())
        assert own.all_reduce_s.tolist() == own.all_reduce_bytes.tolist() == [0.0, 0.0]
