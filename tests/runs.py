"""Records of runs made by hand, for the tests of whatever reads them."""

from dataclasses import replace

from stagecut.planner.core.run_record import (
    CheckRecord,
    DilationRecord,
    RunMode,
    RunRecord,
    StageFigures,
    StageRecord,
    StepRecord,
)
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.core.virtual_workers.wave_run_record import (
    DroppedWorker,
    WaveRunRecord,
    WaveWaits,
    WaveWorkerRecord,
)

STAGE = StageRecord(
    start=0,
    stop=2,
    devices=("a-0/0",),
    device_type="gpu",
    replicas=1,
    tensor_parallel=1,
    recompute=False,
    samples_per_replica=2.0,
    predicted=StageFigures(forward_s=1.0, backward_s=2.0, sync_s=0.0, update_s=0.5, memory_bytes=4e9),
    measured=StageFigures(forward_s=1.1, backward_s=1.9, sync_s=None, update_s=0.25, memory_bytes=None),
    busy_s=6.0,
    wait_s=3.0,
    idle_s=1.0,
)
"""Forward 10 % slower than predicted, backward 5 % faster; 60 % busy, 30 % waiting in 10 s."""


def step(seconds, *, loss=1.0, share=0.0):
    """A step; clean where no rank lacked a processor for more than 2 % of it."""
    return StepRecord(seconds=seconds, loss=loss, run_queue_share=share, clean=share <= 0.02)


RUN = RunRecord(
    plan_hash="ab" * 32,
    profile_hash="cd" * 32,
    model="three",
    cluster="pair",
    device="cpu",
    mode=RunMode.REAL,
    versions=(("python", "3.11"), ("stagecut", "0.1")),
    started="2026-01-31T12:00:00Z",
    schedule=Schedule.ONE_F_ONE_B,
    micro_batch=2,
    num_microbatches=2,
    num_pipelines=1,
    global_batch=4,
    sequence_length=8,
    predicted_s=8.0,
    measured_s=10.0,
    contaminated=False,
    warmup=1,
    steps=(step(30.0, loss=3.0), step(10.0, loss=2.0, share=0.01), step(12.0, loss=1.5, share=0.5)),
    stages=(STAGE,),
    check=CheckRecord(loss_difference=0.0, largest_gradient_difference=1e-12, tolerance=1e-9, passed=True),
)
"""A step of warm-up, a clean one of 10 s, and one that other programs disturbed."""

CONTAMINATED = replace(RUN, contaminated=True, steps=(step(30.0), step(10.0, share=0.3), step(10.0, share=0.1)))
DILATED = replace(
    RUN,
    mode=RunMode.DILATED,
    measured_s=8.08,
    dilation=DilationRecord(time_scale=0.5, stand_ins=True, one_process=True, late_share=0.0075),
)
"""1 % above what was predicted, in half the time."""

WORKER = WaveWorkerRecord(
    devices=("fast/0", "slow/0"),
    samples_per_wave=8,
    predicted_samples_per_s=10.0,
    measured_samples_per_s=8.0,
    local_staleness=1,
    local_bound=1,
    global_staleness=0,
    global_bound=4,
    predicted_waits=WaveWaits(gate_s=0.0, pipeline_s=0.5, link_s=0.25),
    measured_waits=WaveWaits(gate_s=0.125, pipeline_s=0.5, link_s=0.0),
)
WAVE_RUN = WaveRunRecord(
    plan_hash="ef" * 32,
    profile_hash="cd" * 32,
    model="three",
    cluster="pair",
    device="cpu",
    mode=RunMode.REAL,
    one_process=True,
    versions=(("python", "3.11"), ("stagecut", "0.1")),
    started="2026-01-31T12:00:00Z",
    samples_per_wave=16,
    num_waves=4,
    warmup=1,
    predicted_samples_per_s=20.0,
    measured_samples_per_s=16.0,
    losses=(3.0, 2.5, 2.0, None),
    workers=(WORKER, WORKER),
)
"""Two workers, each 20 % slower than predicted; the last loss is not a number."""
WAVE_RUN_WITHOUT_ONE = replace(
    WAVE_RUN,
    mode=RunMode.DILATED,
    time_scale=2.0,
    workers=(
        WORKER,
        replace(
            WORKER,
            measured_samples_per_s=None,
            local_staleness=None,
            global_staleness=None,
            measured_waits=None,
            dropped=DroppedWorker(num_waves=0, reason="died"),
        ),
    ),
)
"""The second worker was lost in its first wave."""
