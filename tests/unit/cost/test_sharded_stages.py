"""Stages whose devices divide each operator in its own way, at the prices of memory."""

from dataclasses import replace

import numpy as np
import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, Optimizer
from stagecut.planner.core.model import Layer, ModelProfile, SkipEdge
from stagecut.planner.core.operators.operators import INPUT, OUTPUT, SAMPLE, Operator, Port, Split, Tensor, Weight
from stagecut.planner.core.operators.parallelism import Parallelism
from stagecut.planner.core.operators.strategy import (
    MEMORY_PRICES,
    LayerStrategy,
    StageSharding,
    Strategy,
    WeightStorage,
)
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel

LINEAR = Operator(
    name="linear",
    kind="linear",
    inputs=(Port(tensor=INPUT, dims=(SAMPLE, "in")),),
    outputs=(Tensor(name=OUTPUT, dims=(SAMPLE, "out"), num_bytes=4.0),),
    weights=(Weight(name="weight", dims=("out", "in"), num_bytes=80.0),),
    splits=(Split(dim=SAMPLE), Split(dim="in", size=2), Split(dim="out", size=2)),
    forward_flops=8.0,
)
LAYER = Layer(name="a", params_bytes=80.0, forward_flops=8.0, saved_bytes=4.0, output_bytes=4.0, operators=(LINEAR,))
PAIR = Placement(server_class=0, island=0, tensor_parallel=2)


def problem_of(*layers, kinds=tuple(Parallelism), **choices):
    """Two devices of 1 FLOP/s that send 4 bytes per second; 2 bytes of weights, gradients and state per parameter."""
    device = DeviceType(name="d", peak_flops_per_s=((Precision.FP16, 1.0),), memory_bytes=1000.0)
    island = Island(device_type="d", count=2, fabric=Link(bandwidth_bytes_per_s=4.0, latency_s=0.0))
    return Problem(
        model=ModelProfile(name="m", layers=layers),
        cluster=Cluster(name="c", device_types=(device,), servers=(Server(name="s", islands=(island,)),)),
        job=Job(
            global_batch=4,
            micro_batches=(2,),
            optimizer=Optimizer(name="o", weight_bytes=2.0, gradient_bytes=2.0, state_bytes=2.0),
            sharding=kinds,
            **choices,
        ),
    )


def stage(problem, price, *, recompute=False, stop=1):
    costs = CostModel(problem).stages.stages(
        replace(PAIR, sharding=price), micro_batch=2, recompute=recompute, start=np.array([0]), stop=np.array([stop])
    )
    return {name: float(getattr(costs, name)[0]) for name in ("forward_s", "backward_s", "sync_s", "static_bytes")}


def test_the_fastest_sharding_of_a_heavy_weight_divides_it():
    """Half of 2 x 8 FLOPs in each direction, twice in the backward, and no all-reduce of 80 bytes.

    Split along `out`, the first layer takes whole inputs, which have no gradient: nothing is sent. 40 parameters are
    divided by 2, with 6 bytes each.
    """
    assert stage(problem_of(LAYER), 0) == {"forward_s": 8.0, "backward_s": 16.0, "sync_s": 0.0, "static_bytes": 120.0}


def test_a_job_that_allows_data_parallelism_alone_sums_gradients():
    """80 bytes of gradients around a ring of two: twice a half, at 4 bytes per second."""
    found = stage(problem_of(LAYER, kinds=(Parallelism.DATA,)), 0)
    assert found == {"forward_s": 8.0, "backward_s": 16.0, "sync_s": 20.0, "static_bytes": 240.0}


def test_at_a_high_price_of_memory_all_of_the_weights_are_held_in_parts():
    """FSDP: 40 parameters x 6 bytes / 2; gathers of 80 bytes take 10 s in each direction, and so does the scatter."""
    found = stage(problem_of(LAYER, kinds=(Parallelism.FSDP,)), len(MEMORY_PRICES) - 1)
    assert found == {"forward_s": 18.0, "backward_s": 36.0, "sync_s": 0.0, "static_bytes": 120.0}


def test_prices_trade_time_for_memory():
    problem = problem_of(LAYER, replace(LAYER, name="b"), kinds=(Parallelism.DATA, Parallelism.FSDP))
    found = [stage(problem, price, stop=2) for price in range(len(MEMORY_PRICES))]
    held, seconds = [each["static_bytes"] for each in found], [each["forward_s"] for each in found]
    assert held == sorted(held, reverse=True)
    assert seconds == sorted(seconds)


def test_a_recomputing_stage_is_divided_as_without():
    problem = problem_of(LAYER, replace(LAYER, name="b"))
    plain, again = stage(problem, 0, stop=2), stage(problem, 0, stop=2, recompute=True)
    assert again == plain | {"backward_s": plain["backward_s"] + plain["forward_s"]}


def test_a_stated_sharding_is_costed_and_not_improved():
    """Data parallelism with ZeRO-1: 80 + 80 bytes scattered and gathered over two devices; state of 20 parameters."""
    strategy = Strategy(splits=(SAMPLE,), storage=WeightStorage.OPTIMIZER)
    sharding = StageSharding(mesh=(2,), layers=(LayerStrategy(operators=(strategy,)),))
    stages = CostModel(problem_of(LAYER)).stages
    found = stages.divided(PAIR, sharding, micro_batch=2, recompute=False, start=0, stop=1)
    assert (found.sync_s[0], found.static_bytes[0], found.saved_bytes[0]) == (20.0, 200.0, 4.0)


def test_divisions_without_sharding_are_those_of_the_job():
    assert problem_of(LAYER, kinds=None).divisions == ((1, None),)


def test_every_memory_price_is_a_division_of_the_devices_of_an_island():
    assert problem_of(LAYER).divisions == ((1, None), *((2, price) for price in range(len(MEMORY_PRICES))))


def test_models_with_skip_edges_are_not_sharded():
    layers = tuple(replace(LAYER, name=name) for name in "abc")
    problem = problem_of(*layers)
    model = replace(problem.model, skip_edges=(SkipEdge(source=0, target=2, num_bytes=1.0),))
    assert replace(problem, model=model).divisions == ((1, None),)


@pytest.mark.parametrize("price", range(len(MEMORY_PRICES)))
def test_the_sharding_of_a_placement_costs_what_the_placement_does(price):
    problem = problem_of(LAYER, replace(LAYER, name="b"))
    stages, placement = CostModel(problem).stages, replace(PAIR, sharding=price)
    sharding = stages.sharding(placement, micro_batch=2, start=0, stop=2)
    stated = stages.divided(PAIR, sharding, micro_batch=2, recompute=False, start=0, stop=2)
    assert {name: getattr(stated, name)[0] for name in stage(problem, price, stop=2)} == pytest.approx(
        stage(problem, price, stop=2)
    )
