"""Costs of stages against plain sums over their layers."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagecut.planner.core.cluster import AllReduceTable, Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge, TimeTable
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.share import WHOLE, Share
from stagecut.planner.cost.collectives import exchange_of
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.layer_times import layer_times, parts
from tests.property.strategies import problems

OPTIMIZER = Optimizer(name="sizes", weight_bytes=2.0, gradient_bytes=4.0, state_bytes=8.0)
SINGLE, PAIR = (Placement(server_class=0, island=0, replicas=replicas) for replicas in (1, 2))


def layer(index, **changes):
    """F = 1, 2, 3, ... s and B = 10, 20, 30, ... s for one sample."""
    table = TimeTable(device_type="gpu", samples=(1,), forward_s=(index + 1.0,), backward_s=(10.0 * (index + 1),))
    figures = {"params_bytes": 2.0, "saved_bytes": 5.0, "output_bytes": 1.0} | changes
    return Layer(name=f"layer-{index}", times=(table,), **figures)


def problem(*layers, skip_edges=(), count=2, zero1=False):
    island = Island(device_type="gpu", count=count, fabric=Link(bandwidth_bytes_per_s=2.0, latency_s=1.0))
    kind = DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=100.0, memory_bandwidth_bytes_per_s=4.0)
    return Problem(
        model=ModelProfile(name="chain", layers=layers, skip_edges=skip_edges),
        cluster=Cluster(name="one", device_types=(kind,), servers=(Server(name="host", islands=(island,)),)),
        job=Job(global_batch=8, optimizer=OPTIMIZER, micro_batches=(2,), zero1=zero1),
    )


def stage(chosen, start, stop, *, placement=SINGLE, recompute=False, micro_batch=2, share=WHOLE):
    costs = CostModel(chosen, share).stages.stages(
        placement, micro_batch=micro_batch, recompute=recompute, start=np.array([start]), stop=np.array([stop])
    )
    return {name: float(getattr(costs, name)[0]) for name in costs.__slots__}


THREE = problem(layer(0), layer(1, saved_bytes=7.0, working_bytes=3.0), layer(2, working_bytes=4.0))


def test_a_stage_by_hand():
    """Layers 1 and 2, 2 samples: F = 2 (2 + 3), B = 2 (20 + 30). Two fp16 parameters of 2 + 4 + 8 bytes.

    Saved 2 (7 + 5), working 2 x 4. The step touches 2 (2 + 8) + 4 = 24 bytes a parameter at 4 bytes/s.
    """
    assert stage(THREE, 1, 3) == {
        "forward_s": 10.0,
        "backward_s": 100.0,
        "sync_s": 0.0,
        "update_s": 12.0,
        "static_bytes": 28.0,
        "saved_bytes": 24.0,
        "working_bytes": 8.0,
    }


def test_replicas_split_the_samples_and_reduce_the_gradients():
    """One sample each; 2 steps of 8 / 2 bytes of gradients at 2 bytes/s and 1 s: 6 s."""
    assert stage(THREE, 1, 3, placement=PAIR) == {
        "forward_s": 5.0,
        "backward_s": 50.0,
        "sync_s": 6.0,
        "update_s": 12.0,
        "static_bytes": 28.0,
        "saved_bytes": 12.0,
        "working_bytes": 4.0,
    }


def test_recomputation_keeps_inputs_and_repeats_the_forward():
    """Inputs of layers 1 and 2, 1 byte each; the largest saved bytes, 7, on top of the largest working bytes, 4."""
    again = stage(THREE, 1, 3, recompute=True)
    assert (again["forward_s"], again["backward_s"]) == (10.0, 110.0)
    assert (again["saved_bytes"], again["working_bytes"]) == (2 * 2.0, 2 * 11.0)
    assert again["static_bytes"] == stage(THREE, 1, 3)["static_bytes"]


def test_first_layer_has_no_input_to_keep():
    assert stage(THREE, 0, 1, recompute=True)["saved_bytes"] == 0.0


def test_skip_edges_are_kept_at_every_input_they_cross():
    """The edge 0 -> 2 of 3 bytes crosses boundaries 1 and 2: inputs 1 + 3 each."""
    chosen = problem(layer(0), layer(1), layer(2), skip_edges=(SkipEdge(source=0, target=2, num_bytes=3.0),))
    assert stage(chosen, 0, 3, recompute=True)["saved_bytes"] == 2 * 8.0


def test_shared_parameters_are_held_reduced_and_updated_here_too():
    """A copy of 2 bytes is one more parameter: as if it were the layer's own."""
    shared, own = problem(layer(0, shared_params_bytes=2.0)), problem(layer(0, params_bytes=4.0))
    assert stage(shared, 0, 1, placement=PAIR) == stage(own, 0, 1, placement=PAIR)
    assert stage(shared, 0, 1)["static_bytes"] == 28.0
    assert shared.model.num_params == 1.0


def test_memory_grows_with_the_micro_batches_in_flight():
    costs = CostModel(THREE).stages.stages(
        SINGLE, micro_batch=2, recompute=False, start=np.array([1, 1]), stop=np.array([3, 3])
    )
    assert costs.memory_bytes(np.array([1, 3])).tolist() == [28 + 24 + 8, 28 + 72 + 8]


SHAREABLE = problem(layer(0, tensor_parallel_bytes=6.0, params_bytes=8.0), layer(1, working_bytes=3.0), count=4)
SHARED = Placement(server_class=0, island=0, tensor_parallel=2)


def test_devices_that_share_a_replica_divide_what_can_be_shared():
    """2 samples. Layer 0 takes 2 x 1 / 2 = 1 s forward, and its ring moves 2 x 6 bytes: 2 steps of 6 / 2 + 1 = 4 s.

    Layer 1 cannot be shared: 2 x 2 s, its parameter, 2 x 5 saved and 2 x 3 working bytes are on both devices.
    Four fp16 parameters over two devices and one more: 3 x 14 bytes, 3 x 24 / 4 s to update.
    """
    assert stage(SHAREABLE, 0, 2, placement=SHARED) == {
        "forward_s": 1.0 + 8.0 + 4.0,
        "backward_s": 10.0 + 8.0 + 40.0,
        "sync_s": 0.0,
        "update_s": 18.0,
        "static_bytes": 42.0,
        "saved_bytes": 5.0 + 10.0,
        "working_bytes": 6.0,
    }


def test_shared_layers_keep_their_part_of_the_inputs_when_recomputed():
    """The input of layer 1 is whole; the largest saved bytes are those of layer 1, 2 x 5."""
    again = stage(SHAREABLE, 0, 2, placement=SHARED, recompute=True)
    assert (again["saved_bytes"], again["working_bytes"]) == (2.0, 6.0 + 10.0)
    assert again["backward_s"] == 58.0 + 13.0


def test_every_ring_of_replicas_reduces_its_part_of_the_gradients():
    """2 replicas of 2 devices: half of 4 parameters, 2 x 4 bytes: 2 steps of 4 / 2 + 1 s, both rings at once."""
    both = Placement(server_class=0, island=0, replicas=2, tensor_parallel=2)
    assert stage(SHAREABLE, 0, 1, placement=both)["sync_s"] == 6.0


def test_divided_optimizer_state_is_held_and_updated_in_parts():
    """2 replicas: 2 parameters of 2 + 4 + 8 / 2 bytes, 2 x 24 / 2 bytes touched at 4 bytes/s.

    Gradients of 4 bytes are scattered and weights of 2 bytes gathered, one step of 2 x 4 / 2 and one of 2 x 2 / 2
    bytes at 2 bytes/s, 1 s each: 2 + 1 + 1 + 1 = 5 s.
    """
    divided = replace(THREE, job=replace(THREE.job, zero1=True))
    costs = stage(divided, 1, 3, placement=PAIR)
    assert (costs["static_bytes"], costs["update_s"], costs["sync_s"]) == (20.0, 6.0, 5.0)
    alone = stage(divided, 1, 3)
    assert alone == stage(THREE, 1, 3)


def test_pipelines_agree_on_the_gradients():
    """Two pipelines of one device each are like two replicas, but for the samples."""
    share = Share(num_pipelines=2, host_splits=(1,))
    assert stage(THREE, 1, 3, share=share) == stage(THREE, 1, 3) | {"sync_s": 6.0}
    divided = replace(THREE, job=replace(THREE.job, zero1=True))
    assert stage(divided, 1, 3, share=share)["static_bytes"] == 20.0


MEASURED = AllReduceTable(num_devices=2, table=((4.0, 5.0), (12.0, 7.0), (16.0, 11.0)))


def with_measured_all_reduce(chosen):
    server = chosen.cluster.servers[0]
    island = replace(server.islands[0], all_reduce=(MEASURED,))
    return replace(chosen, cluster=replace(chosen.cluster, servers=(replace(server, islands=(island,)),)))


def test_gradients_take_what_was_measured_whatever_the_layers():
    """4 bytes a layer: 5 s for one, 6 for two, 7 for three; an empty stage has the smallest message's 5."""
    measured = with_measured_all_reduce(THREE)
    seconds = [stage(measured, start, stop, placement=PAIR)["sync_s"] for start, stop in ((1, 2), (1, 3), (0, 3))]
    assert seconds == [5.0, 6.0, 7.0]
    assert stage(measured, 0, 0, placement=PAIR)["sync_s"] == 5.0


def test_divided_optimizer_state_is_brought_together_in_the_time_of_one_all_reduce():
    """Gradients of 4 bytes and weights of 2: as 3 for each of two parameters, 6 bytes, 5.5 s."""
    measured = with_measured_all_reduce(replace(THREE, job=replace(THREE.job, zero1=True)))
    assert stage(measured, 1, 3, placement=PAIR)["sync_s"] == 5.5


def test_exchanges_take_what_was_measured():
    """2 samples of 6 bytes: 7 s in each direction, in place of the 8 s of the ring."""
    measured = stage(with_measured_all_reduce(SHAREABLE), 0, 2, placement=SHARED)
    assert (measured["forward_s"], measured["backward_s"]) == (1.0 + 7.0 + 4.0, 10.0 + 7.0 + 40.0)


def test_stages_of_a_measured_all_reduce_take_at_least_its_best_rate():
    """12 bytes of three layers: 7 s at once, 12 or more in parts."""
    assert CostModel(with_measured_all_reduce(THREE)).stages.least_sync_s(PAIR) == 7.0


def _plain(chosen, placement, recompute, micro_batch, start, stop):
    """The same costs, layer by layer."""
    model, optimizer = chosen.model, chosen.job.optimizer
    server = chosen.cluster.servers[placement.server_class]
    kind = chosen.cluster.device_type(server.islands[placement.island].device_type)
    samples, degree = micro_batch / placement.replicas, placement.tensor_parallel
    times = layer_times(model, kind, samples, degree)
    divisor = parts(model, degree)[start:stop]
    layers, inputs = model.layers[start:stop], model.boundary_bytes()[start:stop]
    exchange = exchange_of(chosen.cluster, placement)
    shared = [item.tensor_parallel_bytes for item in layers if item.tensor_parallel_bytes is not None]
    exchange_s = sum(float(exchange.seconds(samples * size)) for size in shared) if degree > 1 else 0.0
    forward_s, backward_s = (sum(seconds[start:stop]) + exchange_s for seconds in times)
    params_bytes = [item.params_bytes + item.shared_params_bytes for item in layers]
    params = sum(params_bytes / divisor) / model.precision.num_bytes
    working = max([item.working_bytes for item in layers] / divisor)
    saved = [item.saved_bytes for item in layers] / divisor
    holders = placement.replicas if chosen.job.zero1 else 1
    touched = 2 * (optimizer.weight_bytes + optimizer.state_bytes) + optimizer.gradient_bytes
    held = optimizer.weight_bytes + optimizer.gradient_bytes + optimizer.state_bytes / holders
    return {
        "forward_s": forward_s,
        "backward_s": backward_s + (forward_s if recompute else 0.0),
        "update_s": params * touched / holders / kind.memory_bandwidth_bytes_per_s,
        "static_bytes": params * held,
        "saved_bytes": samples * (sum(inputs / divisor) if recompute else sum(saved)),
        "working_bytes": samples * (working + max(saved) if recompute else working),
    }


@settings(max_examples=60)
@given(chosen=problems(), recompute=st.booleans(), data=st.data())
def test_prefix_sums_equal_plain_sums(chosen, recompute, data):
    """Every interval of a random model at once."""
    server_class = data.draw(st.integers(0, len(chosen.cluster.servers) - 1))
    islands = chosen.cluster.servers[server_class].islands
    island = data.draw(st.integers(0, len(islands) - 1))
    degree = data.draw(st.sampled_from([degree for degree in (1, 2, 4) if degree <= islands[island].count]))
    replicas = data.draw(st.integers(1, islands[island].count // degree))
    placement = Placement(server_class=server_class, island=island, replicas=replicas, tensor_parallel=degree)
    start, stop = np.triu_indices(chosen.model.num_layers + 1, k=1)
    costs = CostModel(chosen).stages.stages(placement, micro_batch=2, recompute=recompute, start=start, stop=stop)
    for index, interval in enumerate(zip(start, stop, strict=True)):
        for name, value in _plain(chosen, placement, recompute, 2, *interval).items():
            assert getattr(costs, name)[index] == pytest.approx(value, rel=1e-12, abs=1e-12), name


@pytest.mark.parametrize(("seconds", "half_s"), [((1.5, 2.0), 1.75), ((0.5, 2.0), 1.25)])
def test_half_a_forward_takes_what_half_the_samples_take_and_no_less_than_half(seconds, half_s):
    """One sample 1.5 s, two 2 s: 1.5 + 0.25. One sample 0.5 s, two 2 s: 1 + 0.25. Replicas of one sample each: none."""
    table = TimeTable(device_type="gpu", samples=(1, 2), forward_s=seconds, backward_s=(1.0, 2.0))
    plain = problem(replace(layer(0), times=(table,)))
    costs = CostModel(replace(plain, job=replace(plain.job, action_overhead_s=0.25))).stages
    ends = {"micro_batch": 2, "start": np.array([0]), "stop": np.array([1])}
    assert costs.half_forward_s(SINGLE, **ends).tolist() == [half_s]
    assert costs.half_forward_s(PAIR, **ends).tolist() == [np.inf]
