"""Tables and pictures of virtual workers say what the timeline says.

Three workers of two stages on six hosts with one device each; the third one's devices are half as fast, so that the
first two are of one kind. Layers take F = 1 s and B = 2 s on a fast device.
"""

import itertools
import json
from dataclasses import replace

import pytest

from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Link, Server
from stagecut.planner.core.job import Job, WaveChoices, standard_optimizer
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCostModel
from stagecut.planner.report.images import ImageFormat
from stagecut.planner.report.text_table import print_table
from stagecut.planner.report.waves.wave_gantt import draw_wave_gantt, wave_gantt_bytes
from stagecut.planner.report.waves.wave_labels import kind_label, wave_plan_label, worker_kinds
from stagecut.planner.report.waves.wave_perfetto import wave_trace
from stagecut.planner.report.waves.wave_summary import wave_simulation_summary
from stagecut.planner.report.waves.wave_tables import wait_table, wave_stage_tables
from stagecut.planner.simulator.waves.network import WaveKind
from stagecut.planner.simulator.waves.timeline import simulate_waves

TIMES = tuple(
    TimeTable(device_type=name, samples=(2,), forward_s=(1.0 * s,), backward_s=(2.0 * s,))
    for name, s in (("quick", 1), ("slow", 2))
)
LINK = Link(bandwidth_bytes_per_s=1e9, latency_s=0.1)


@pytest.fixture(scope="module")
def problem():
    layers = tuple(
        Layer(name=name, params_bytes=1e8, saved_bytes=1e8, output_bytes=1e8, times=TIMES) for name in ("in", "out")
    )
    types = tuple(DeviceType(name=name, peak_flops_per_s=(), memory_bytes=8e9) for name in ("quick", "slow"))
    servers = tuple(
        Server(name=name, islands=(Island(device_type=name, count=1),), count=count, nic=LINK)
        for name, count in (("quick", 4), ("slow", 2))
    )
    optimizer = standard_optimizer("sgd", Precision.FP16)
    return Problem(
        model=ModelProfile(name="two", layers=layers),
        cluster=Cluster(name="six", device_types=types, servers=servers),
        job=Job(global_batch=2, optimizer=optimizer, micro_batches=(2,), waves=WaveChoices()),
    )


def _worker(*devices):
    stages = tuple(
        Stage(start=s, stop=s + 1, devices=(device,), warmup_depth=2 - s, forward_micro_batch=2, backward_micro_batch=2)
        for s, device in enumerate(devices)
    )
    return VirtualWorker(stages=stages, minibatch=2, in_flight=2, wave=2)


@pytest.fixture(scope="module")
def plan():
    workers = (_worker("quick-0/0", "quick-1/0"), _worker("quick-2/0", "quick-3/0"), _worker("slow-0/0", "slow-1/0"))
    return WavePlan(workers=workers, owners=("quick-0", "slow-1"))


@pytest.fixture(scope="module")
def timeline(problem, plan):
    return simulate_waves(WaveCostModel(problem).plan(plan), num_waves=3)


def _printed(table, capsys):
    print_table(table)
    return capsys.readouterr().out.splitlines()


def test_workers_alike_are_one_kind(timeline):
    assert worker_kinds(timeline.costs) == ((0, 1), (2,))
    assert [kind_label(kind) for kind in worker_kinds(timeline.costs)] == ["2x  0, 1", "2"]


def test_a_plan_in_one_line(plan):
    assert wave_plan_label(plan) == (
        "3 virtual workers, N_m = 2, minibatches of 2, D = 0, spread parameter servers, a step after each minibatch"
    )
    by_wave = replace(plan, carrier=Carrier.DELAYED_ALL_REDUCE, owners=(), local_step=LocalStep.WAVE, clock_distance=4)
    assert wave_plan_label(by_wave).endswith("D = 4, delayed all-reduce, one step a wave")
    assert wave_plan_label(replace(plan, workers=plan.workers[:1])) == (
        "1 virtual worker, N_m = 2, minibatches of 2, a step after each minibatch"
    )


def test_the_stage_table_has_a_block_for_each_kind(problem, timeline, capsys):
    wide, *narrower = wave_stage_tables(problem, timeline)
    lines = [line for line in _printed(wide, capsys) if "quick" in line or "slow" in line]
    assert [line.split()[0] for line in lines] == ["2x", "1", "2", "1"]
    assert "quick-0/0, quick-2/0" in lines[0]
    assert "slow-1/0" in lines[3]
    assert len(narrower) == 3
    assert all(len(table.rows) == 4 for table in narrower)


def test_the_wait_table_has_a_row_for_each_worker(timeline, capsys):
    *_, slow = _printed(wait_table(timeline), capsys)
    steady = timeline.steady
    # Two stages of 2 + 4 s compute twice a wave; no memory traffic is modelled, so local steps take no time.
    assert f"{100 * 24 / (2 * steady.wave_s):.2f} %" in slow


@pytest.mark.parametrize("changes", [{}, {"carrier": Carrier.DELAYED_ALL_REDUCE, "owners": ()}])
def test_slices_of_a_lane_never_overlap_and_links_are_shared(problem, plan, changes):
    timeline = simulate_waves(WaveCostModel(problem).plan(replace(plan, **changes)))
    lanes = {}
    for event in json.loads(json.dumps(wave_trace(timeline)))["traceEvents"]:
        if event["ph"] == "X":
            lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for spans in lanes.values():
        assert all(before[1] <= after[0] for before, after in itertools.pairwise(sorted(spans)))
    assert len({process for process, _ in lanes}) == 4  # three workers and the links


def test_the_trace_names_processes_lanes_and_messages(timeline):
    events = wave_trace(timeline)["traceEvents"]
    names = [event["args"]["name"] for event in events if event["ph"] == "M" and "name" in event["args"]]
    assert names[:3] == ["worker 0", "stage 0  quick-0/0", "stage 1  quick-1/0"]
    assert "slow-1:nic-in" in names
    slices = {event["name"] for event in events if event["ph"] == "X"}
    assert {"F 1", "B 1", "activations 1", "push 0 to slow-1", "pull 1 from quick-0"} <= slices


def test_the_summary_is_json_with_throughput_staleness_and_waits(timeline):
    """N_m = 2 and D = 0: a minibatch lacks 1 of its own updates and (0 + 2) 2 - 2 = 2 minibatches of others."""
    tree = json.loads(json.dumps(wave_simulation_summary(timeline), allow_nan=False))
    assert tree["samples_per_s"] == pytest.approx(12 / timeline.steady.wave_s)
    assert [(own["local_staleness"], own["global_staleness"]) for own in tree["workers"]] == [(1, 2)] * 3
    assert tree["workers"][2]["stages"][1]["devices"] == ["slow-1/0"]
    assert set(tree["workers"][0]["waits_per_wave"]) == {"gate_s", "pipeline_s", "link_s"}


def test_the_chart_ends_with_the_last_computation(timeline):
    figure, axes = draw_wave_gantt(timeline, title="three")
    computed = [span.end_s for span in timeline.spans if span.kind is WaveKind.BACKWARD]
    assert axes.get_xlim() == pytest.approx((0.0, max(computed)))
    assert next(label.get_text() for label in axes.get_yticklabels()) == "worker 0, stage 0  quick-0/0"
    assert axes.get_title(loc="left").startswith("three: ")
    assert figure.get_size_inches()[1] > 0


def test_the_chart_has_the_same_bytes_every_time(timeline):
    assert wave_gantt_bytes(timeline, ImageFormat.SVG) == wave_gantt_bytes(timeline, ImageFormat.SVG)
