"""Tokens per second, utilisation and price, derived by hand."""

from dataclasses import replace

import pytest

from stagecut.planner.analysis.prediction import play
from stagecut.planner.analysis.throughput import throughput_of
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Recompute
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.placement import Placement
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.network.arrangement import NamedStage, plan_of
from tests.catalogue import job

DEVICES = ("big-0/0", "big-0/1", "small/0")


def kind(name, teraflops, price_per_hour=None):
    peaks = ((Precision.FP16, teraflops * 1e12),)
    return DeviceType(name=name, peak_flops_per_s=peaks, memory_bytes=1e12, price_per_hour=price_per_hour)


def problem(*, price=None, server_price=None, slow_price=None, tokens=500, flops=2e12):
    """Two hosts of two fast devices (3 TFLOP/s) and one of a slow one (1 TFLOP/s); two layers."""
    layers = tuple(Layer(name=f"layer-{index}", forward_flops=flops) for index in range(2))
    island = Island(device_type="fast", count=2)
    cluster = Cluster(
        name="mixed",
        device_types=(kind("fast", 3.0, price), kind("slow", 1.0, slow_price)),
        servers=(
            Server(name="big", count=2, islands=(island,), price_per_hour=server_price),
            Server(name="small", islands=(Island(device_type="slow", count=1),)),
        ),
    )
    model = ModelProfile(name="two", layers=layers, sequence_length=tokens)
    return Problem(model=model, cluster=cluster, job=job(4, recompute=Recompute.NEVER))


def test_tokens_and_utilisation():
    """0.25 samples/s x 500 tokens; 3 x 2 layers x 2 TFLOP x 0.25 = 3 TFLOP/s of a peak of 3 + 3 + 1."""
    found = throughput_of(problem(), DEVICES, 0.25)
    assert found.tokens_per_s == 125.0
    assert found.model_flops_per_s == pytest.approx(3e12)
    assert found.peak_flops_per_s == pytest.approx(7e12)
    assert found.model_flops_utilisation == pytest.approx(3 / 7)
    assert found.num_devices == 3


def test_recomputed_forwards_do_not_count_as_model_flops():
    """One device computes all the time: 3 of 3 forwards of work are the model's, with recomputation 3 of 4."""
    plain = problem()
    costs = CostModel(plain)

    def played(recompute):
        where = Placement(server_class=0, island=0)
        stage = NamedStage(start=0, stop=2, placement=where, devices=("big-0/0",), recompute=recompute)
        return play(plain, plan_of(costs, plain.variants[0], [stage]))

    assert played(recompute=False).throughput.model_flops_utilisation == pytest.approx(1.0)
    assert played(recompute=True).throughput.model_flops_utilisation == pytest.approx(3 / 4)


def test_what_the_model_or_a_device_does_not_state_stays_unknown():
    found = throughput_of(problem(tokens=None, flops=0.0), DEVICES, 0.25)
    assert (found.tokens_per_s, found.model_flops_per_s, found.model_flops_utilisation) == (None, None, None)


def test_without_the_peak_of_one_device_there_is_no_utilisation():
    """The slow device's times are measured, so that its peak is not needed for planning."""
    stated = problem()
    times = (TimeTable(device_type="slow", samples=(1,), forward_s=(1.0,), backward_s=(2.0,)),)
    layers = tuple(replace(layer, times=times) for layer in stated.model.layers)
    kinds = (stated.cluster.device_types[0], DeviceType(name="slow", peak_flops_per_s=(), memory_bytes=1e12))
    cluster = replace(stated.cluster, device_types=kinds)
    measured = Problem(model=replace(stated.model, layers=layers), cluster=cluster, job=stated.job)
    found = throughput_of(measured, DEVICES, 0.25)
    assert (found.peak_flops_per_s, found.model_flops_utilisation) == (None, None)
    assert found.model_flops_per_s == pytest.approx(3e12)
    assert throughput_of(measured, DEVICES[:2], 0.25).model_flops_utilisation == pytest.approx(1 / 2)


def test_price_of_the_devices_used():
    """2 x 1.5 + 0.6 an hour; at 0.25 samples/s an hour has 900 samples and 450,000 tokens."""
    found = throughput_of(problem(price=1.5, slow_price=0.6), DEVICES, 0.25)
    assert found.price_per_hour == pytest.approx(3.6)
    assert found.price_per_million_samples == pytest.approx(3.6 / 900 * 1e6)
    assert found.price_per_million_tokens == pytest.approx(3.6 / 0.45)
    assert found.without_price == ()


def test_a_server_with_a_price_is_paid_for_as_a_whole():
    """One device of each big host at 8 an hour is used: 16, whatever a device costs, and 0.6 for the slow one."""
    found = throughput_of(problem(price=1.5, server_price=8.0, slow_price=0.6), ("big-0/0", "big-1/1", "small/0"), 1.0)
    assert found.price_per_hour == pytest.approx(16.6)


def test_a_missing_price_is_named_where_others_are_stated():
    found = throughput_of(problem(price=1.5), DEVICES, 1.0)
    assert (found.price_per_hour, found.without_price) == (None, ("slow",))
    assert throughput_of(problem(price=1.5), DEVICES[:2], 1.0).price_per_hour == pytest.approx(3.0)
    nowhere = throughput_of(problem(), DEVICES, 1.0)
    assert (nowhere.price_per_hour, nowhere.without_price, nowhere.price_per_million_tokens) == (None, (), None)
