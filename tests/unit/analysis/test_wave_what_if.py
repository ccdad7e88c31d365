"""A plan of virtual workers moves to a larger cluster."""

from dataclasses import replace
from pathlib import Path

import pytest

from stagecut.planner.analysis.wave_what_if import WaveWhatIf, _on
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.result import Status
from stagecut.planner.core.virtual_workers.wave_plan import VirtualWorker, WavePlan
from stagecut.planner.core.virtual_workers.wave_result import WaveResult
from stagecut.planner.io.files.cluster import read_cluster
from stagecut.planner.solvers.diagnosis.extra_units import with_one_more_server

CLUSTER = read_cluster(Path(__file__).parents[3] / "examples" / "tiny" / "cluster.yaml")


@pytest.fixture
def plan():
    """One worker: a stage on a fast device, one on a slow device; the hosts own a layer each."""
    stages = tuple(
        Stage(
            start=index,
            stop=index + 1,
            devices=(device,),
            warmup_depth=1,
            forward_micro_batch=4,
            backward_micro_batch=4,
        )
        for index, device in enumerate(("fast/1", "slow/0"))
    )
    worker = VirtualWorker(stages=stages, minibatch=4, in_flight=1, wave=1)
    return WavePlan(workers=(worker,), owners=("slow", "fast"))


def test_a_plan_stays_as_it_is_where_hosts_keep_their_names(plan):
    assert _on(CLUSTER, plan) == plan


def test_a_host_that_gets_a_number_keeps_its_stages_and_layers(plan):
    moved = _on(with_one_more_server(CLUSTER, 0), plan)
    assert moved.workers[0].devices == ("fast-0/1", "slow/0")
    assert moved.owners == ("slow", "fast-0")


def test_a_plan_has_no_counterpart_without_its_hosts(plan):
    renamed = tuple(replace(server, name=f"new-{server.name}") for server in CLUSTER.servers)
    assert _on(replace(CLUSTER, servers=renamed), plan) is None


def test_gains_are_relative_to_the_plan():
    """12 instead of 10 samples/s, 15 at most."""
    result = WaveResult(
        status=Status.FEASIBLE, solver="waves-ed", seconds=0.0, samples_per_s=12.0, bound_samples_per_s=15.0
    )
    row = WaveWhatIf(what="more", unit="nic", planned_samples_per_s=10.0, result=result)
    assert (row.gained, row.gained_at_most) == (pytest.approx(0.2), pytest.approx(0.5))
    assert replace(row, result=None).gained is None
