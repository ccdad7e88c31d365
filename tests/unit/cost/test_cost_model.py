"""A plan turned into numbers, by hand.

Three layers of 1 s forward and 2 s backward per sample on `gpu`, half that on `fast`; 4 bytes between
layers. Micro-batches of 2 samples; a parameter of 1 + 1 + 2 bytes per layer.
"""

from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.cost_model import CostModel

TIMES = tuple(
    TimeTable(device_type=name, samples=(1,), forward_s=(seconds,), backward_s=(2 * seconds,))
    for name, seconds in (("gpu", 1.0), ("fast", 0.5))
)
LAYERS = tuple(
    Layer(name=f"layer-{i}", params_bytes=2.0, saved_bytes=3.0, output_bytes=4.0, working_bytes=1.0, times=TIMES)
    for i in range(3)
)
CLUSTER = Cluster(
    name="two",
    device_types=(
        DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=100.0, memory_bandwidth_bytes_per_s=7.0),
        DeviceType(name="fast", peak_flops_per_s=(), memory_bytes=50.0),
    ),
    servers=(
        Server(
            name="many",
            islands=(Island(device_type="gpu", count=3, fabric=Link(bandwidth_bytes_per_s=2.0), shared=True),),
            nic=Link(bandwidth_bytes_per_s=4.0, latency_s=0.25),
        ),
        Server(name="one", islands=(Island(device_type="fast", count=1),)),
    ),
    network=Link(bandwidth_bytes_per_s=16.0, latency_s=0.5),
)
PROBLEM = Problem(
    model=ModelProfile(name="three", layers=LAYERS),
    cluster=CLUSTER,
    job=Job(
        global_batch=8,
        optimizer=Optimizer(name="sizes", weight_bytes=1.0, gradient_bytes=1.0, state_bytes=2.0),
        micro_batches=(2,),
    ),
)


def stage(start, stop, *devices, depth, recompute=False):
    return Stage(
        start=start,
        stop=stop,
        devices=devices,
        replicas=len(devices),
        recompute=recompute,
        warmup_depth=depth,
        forward_micro_batch=2,
        backward_micro_batch=2,
    )


def plan(*stages):
    pipeline = Pipeline(stages=stages)
    return Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=2, num_microbatches=4, pipelines=(pipeline,))


THREE_STAGES = plan(
    stage(0, 1, "many/0", "many/1", depth=3),
    stage(1, 2, "many/2", depth=2, recompute=True),
    stage(2, 3, "one/0", depth=1),
)


def test_times_of_a_plan():
    """One sample on each of two replicas; two samples, with a second forward before the backward; 2 x 0.5 s."""
    costs = CostModel(PROBLEM).plan(THREE_STAGES)
    assert costs.forward_s.tolist() == [1.0, 2.0, 1.0]
    assert costs.backward_s.tolist() == [2.0, 6.0, 2.0]
    assert costs.warmup_depth.tolist() == [3, 2, 1]
    assert costs.variant == PROBLEM.variants[0]


def test_transfers_of_a_plan():
    """8 bytes: through the fabric at 2 bytes/s, then through an interface at 4 bytes/s after 0.25 + 0.5 s."""
    costs = CostModel(PROBLEM).plan(THREE_STAGES)
    assert costs.transfer_s.tolist() == [4.0, 2.75]
    assert costs.forward_links == (("many:fabric-0",), ("many:nic-out", "one:nic-in"))
    assert costs.backward_links == (("many:fabric-0",), ("one:nic-out", "many:nic-in"))


def test_end_of_a_plan():
    """A ring of two in a shared fabric: 2 steps of half a byte at 2 / 2 bytes/s. 2 (1 + 2) + 1 = 7 bytes touched."""
    costs = CostModel(PROBLEM).plan(THREE_STAGES)
    assert costs.sync_s.tolist() == [1.0, 0.0, 0.0]
    assert costs.sync_links == (("many:fabric-0",), (), ())
    assert costs.update_s.tolist() == [1.0, 1.0, 0.0]


def test_memory_of_a_plan():
    """Recomputing, the input of 2 x 4 bytes is kept, and 2 (1 + 3) bytes are needed to work."""
    costs = CostModel(PROBLEM).plan(THREE_STAGES)
    assert costs.static_bytes.tolist() == [4.0, 4.0, 4.0]
    assert costs.saved_bytes.tolist() == [3.0, 8.0, 6.0]
    assert costs.working_bytes.tolist() == [1.0, 8.0, 2.0]
    assert costs.memory_bytes.tolist() == [4 + 3 * 3 + 1, 4 + 2 * 8 + 8, 4 + 6 + 2]
    assert costs.limit_bytes.tolist() == [100.0, 100.0, 50.0]


def test_plan_of_one_stage_has_no_transfers():
    costs = CostModel(PROBLEM).plan(plan(stage(0, 3, "one/0", depth=1)))
    assert costs.transfer_s.shape == (0,)
    assert costs.forward_links == costs.backward_links == ()


def test_hosting_is_recognised_from_device_names():
    group = CostModel(PROBLEM).device_group(THREE_STAGES.stages[0])
    assert group.placement == Placement(server_class=0, island=0, replicas=2)
    assert group.hosts == (0,)


HALF = Share(num_pipelines=2, host_splits=(1,))
SHARED_HOST = replace(
    PROBLEM,
    cluster=replace(
        CLUSTER, servers=(replace(CLUSTER.servers[0], islands=(replace(CLUSTER.servers[0].islands[0], count=4),)),)
    ),
)
"""Four devices in one shared fabric."""


def test_costs_of_several_pipelines_are_those_of_one_in_its_share():
    """Two stages each. The fabric has 2 / 2 bytes/s for each: 8 bytes take 8 s.

    The ring of the two first stages makes two transfers at once: 2 steps of half a byte at 1 byte/s.
    """
    pipelines = tuple(
        Pipeline(stages=(stage(0, 1, f"many/{2 * p}", depth=2), stage(1, 3, f"many/{2 * p + 1}", depth=1)))
        for p in range(2)
    )
    both = Plan(schedule=Schedule.ONE_F_ONE_B, micro_batch=2, num_microbatches=2, pipelines=pipelines, share=HALF)
    costs = CostModel(SHARED_HOST).plan(both)
    assert costs.forward_s.tolist() == [2.0, 4.0]
    assert costs.transfer_s.tolist() == [8.0]
    assert costs.sync_s.tolist() == [1.0, 2.0]
    assert costs.sync_links == (("many:fabric-0",), ("many:fabric-0",))


def test_costs_of_another_share_are_computed_once():
    costs = CostModel(SHARED_HOST)
    assert costs.of(HALF) is costs.of(HALF)
    assert costs.of(HALF).of(WHOLE) is costs
    assert costs.of(HALF).cluster.num_devices == 2


def test_device_of_another_pipeline_is_refused():
    with pytest.raises(BadInputError, match="devices of cluster 'one of 2 equal shares of two'"):
        CostModel(SHARED_HOST).of(HALF).device_group(stage(0, 3, "many/2", depth=1))


def interleaved(*devices):
    """One layer for each of four stages, on these devices in turn."""
    depths = warmup_depths(Schedule.INTERLEAVED, 4, 4, chunks=4 // len(devices))
    stages = tuple(stage(index, index + 1, devices[index % len(devices)], depth=depths[index]) for index in range(4))
    return Plan(
        schedule=Schedule.INTERLEAVED,
        micro_batch=2,
        num_microbatches=4,
        pipelines=(Pipeline(stages=stages),),
        chunks=4 // len(devices),
    )


FOUR_LAYERS = replace(PROBLEM, model=ModelProfile(name="four", layers=(*LAYERS, replace(LAYERS[0], name="last"))))


def test_interleaved_stages_send_back_to_the_first_device():
    """8 bytes at 2 bytes/s through the fabric, forth and back and forth."""
    costs = CostModel(FOUR_LAYERS).plan(interleaved("many/0", "many/1"))
    assert costs.transfer_s.tolist() == [4.0, 4.0, 4.0]
    assert costs.forward_links == (("many:fabric-0",),) * 3


def test_stages_on_the_same_device_send_nothing():
    costs = CostModel(FOUR_LAYERS).plan(interleaved("many/0"))
    assert costs.transfer_s.tolist() == [0.0, 0.0, 0.0]
    assert costs.forward_links == ((), (), ())


def test_unknown_device_is_refused():
    with pytest.raises(BadInputError, match="devices of cluster 'two'"):
        CostModel(PROBLEM).plan(plan(stage(0, 3, "nowhere/0", depth=1)))


def test_stage_costs_are_computed_once():
    costs = CostModel(PROBLEM)
    choice = {"micro_batch": 2, "recompute": False, "start": 0, "stop": 2}
    placement = Placement(server_class=1, island=0)
    assert costs.stage(placement, **choice) is costs.stage(replace(placement), **choice)
