"""How layers, devices and numbers are written."""

import dataclasses
import math

import pytest

from stagecut.planner.core.cluster import Link
from stagecut.planner.core.model import Layer, ModelProfile
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.result import OwnObjective, Result, Status, StopCause
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.share import Share
from stagecut.planner.report.labels import (
    bandwidth_label,
    bytes_label,
    count_label,
    device_label,
    layer_label,
    link_label,
    own_objective_label,
    percent_label,
    plan_label,
    share_label,
    status_label,
    table_label,
)

MODEL = ModelProfile(name="chain", layers=tuple(Layer(name=name) for name in ("embedding", "block", "head")))


@pytest.mark.parametrize(
    ("names", "label"),
    [
        (("a/0",), "a/0"),
        (("a/0", "a/1", "a/2"), "a/0-2"),
        (("a/0", "a/2"), "a/0,2"),
        (("a/2", "a/3", "b/0", "b/1"), "a/2-3, b/0-1"),
        (("rack/7/0", "rack/7/1"), "rack/7/0-1"),
        (("gpu",), "gpu"),
    ],
)
def test_devices_of_a_host_are_drawn_together(names, label):
    assert device_label(names) == label


def test_stage_shows_its_first_and_last_layer():
    assert layer_label(MODEL, 0, 3) == "0-2  embedding .. head"
    assert layer_label(MODEL, 1, 2) == "1  block"


def test_infinite_sizes_are_called_unlimited():
    assert bytes_label(math.inf) == "unlimited"
    assert bandwidth_label(math.inf) == "unlimited"
    assert bandwidth_label(15.75e9) == "15.8 GB/s"


@pytest.mark.parametrize(("count", "label"), [(0, "0"), (12, "12"), (1.558e9, "1.56 G"), (3.2e15, "3.2 P")])
def test_counts_get_a_prefix(count, label):
    assert count_label(count) == label


@pytest.mark.parametrize(
    ("name", "value", "label"),
    [
        ("latency, s", 0.4054, "405.4 ms (latency)"),
        ("parameters of the largest stage", 1.558e9, "1.56 G (parameters of the largest stage)"),
    ],
)
def test_own_objective_has_its_unit(name, value, label):
    assert own_objective_label(OwnObjective(name=name, value=value)) == label


def test_unknown_share_is_a_dash():
    assert percent_label(None) == "-"


@pytest.mark.parametrize(
    ("share", "label"),
    [
        (Share(num_pipelines=2, host_splits=(2, 2)), "2 pipelines on whole servers"),
        (Share(num_pipelines=4, host_splits=(1, 1)), "4 pipelines on 1/4 of every server"),
        (Share(num_pipelines=4, host_splits=(2, 4)), "4 pipelines on equal parts of servers"),
    ],
)
def test_share_says_what_each_pipeline_has(share, label):
    assert share_label(share) == label


@pytest.mark.parametrize(
    ("link", "label"),
    [
        (Link(bandwidth_bytes_per_s=12e9), "12 GB/s"),
        (Link(bandwidth_bytes_per_s=1.0, table=((1e3, 1e-5), (2e3, 1.04e-5))), "2.5 GB/s measured"),
        (Link(bandwidth_bytes_per_s=math.inf, table=((1e3, 1e-5),)), "unlimited measured"),
    ],
)
def test_measured_link_shows_the_bandwidth_of_large_messages(link, label):
    assert link_label(link) == label


def test_measured_times_show_their_range():
    assert table_label(((1e3, 1e-5), (2e3, 1.1e-5), (16e6, 1.4e-3))) == "measured, 10 us at 1 kB to 1.4 ms at 16 MB"
    assert table_label(((1e3, 1e-5),)) == "measured, 10 us at 1 kB"


def stage(start, stop, device):
    return Stage(
        start=start, stop=stop, devices=(device,), warmup_depth=1, forward_micro_batch=2, backward_micro_batch=2
    )


def plan_on(*hosts, schedule=Schedule.ONE_F_ONE_B, chunks=1):
    """A pipeline of a stage on each device of every host, all layers on the device `chunks` times in turn."""
    pipelines = tuple(
        Pipeline(stages=tuple(stage(layer, layer + 1, f"{host}/{layer % (2 // chunks)}") for layer in range(2)))
        for host in hosts
    )
    share = Share(num_pipelines=len(hosts), host_splits=(len(hosts),)) if len(hosts) > 1 else Share()
    return Plan(schedule=schedule, micro_batch=2, num_microbatches=4, pipelines=pipelines, share=share, chunks=chunks)


def test_plan_shows_what_holds_for_all_of_it():
    assert plan_label(plan_on("a")) == "1f1b, 2 stages, 4 micro-batches of 2 samples"
    assert plan_label(plan_on("a"), zero1=True) == "1f1b, 2 stages, 4 micro-batches of 2 samples, ZeRO-1"
    assert (
        plan_label(plan_on("a", "b"))
        == "1f1b, 2 pipelines on whole servers, 2 stages each, 4 micro-batches of 2 samples each"
    )
    interleaved = plan_on("a", schedule=Schedule.INTERLEAVED, chunks=2)
    assert plan_label(interleaved) == "interleaved, 2 stages in 2 chunks, 4 micro-batches of 2 samples"


def test_halved_micro_batches_are_told():
    sliced = dataclasses.replace(plan_on("a"), num_sliced=1)
    assert plan_label(sliced) == "1f1b, 2 stages, 4 micro-batches of 2 samples, 1 of them halved during warm-up"


def test_status_names_the_limit_that_ended_the_search():
    done = Result(status=Status.FEASIBLE, solver="dp", seconds=1.0)
    stopped = Result(status=Status.FEASIBLE, solver="dp", seconds=1.0, stopped_by=StopCause.TIME)
    interrupted = Result(status=Status.INTERRUPTED, solver="dp", seconds=1.0, stopped_by=StopCause.USER)
    assert [status_label(result) for result in (done, stopped, interrupted)] == [
        "feasible",
        "feasible (time limit)",
        "interrupted",
    ]
