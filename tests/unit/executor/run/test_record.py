"""Records computed from traces, by hand.

Two stages: stage 0 on two replicas (ranks 0 and 1), stage 1 on one device (rank 2); two micro-batches
of 2 samples. The clock shows 100 s when a step begins; seconds from there are in `_step`.
"""

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.run.record import record_of
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.planner.core.cluster import Cluster, DeviceType, Island, Server
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError, StagecutError
from stagecut.planner.core.model import Layer, ModelProfile, TimeTable
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.run_record import CheckRecord, RunMode
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import PlanFile, provenance_of, to_tree
from stagecut.planner.io.files.plan_statements import Certificate, Prediction, StagePrediction

STARTED = datetime(2026, 1, 31, 13, 0, 0, tzinfo=timezone(timedelta(hours=1)))
TIMES = TimeTable(device_type="gpu", samples=(1,), forward_s=(1.0,), backward_s=(2.0,))
PROBLEM = Problem(
    model=ModelProfile(
        name="three",
        layers=tuple(Layer(name=name, times=(TIMES,)) for name in ("embedding", "block", "head")),
        sequence_length=8,
    ),
    cluster=Cluster(
        name="pair",
        device_types=(DeviceType(name="gpu", peak_flops_per_s=(), memory_bytes=8e9),),
        servers=(Server(name="a", islands=(Island(device_type="gpu", count=2),), count=2),),
    ),
    job=Job(global_batch=4, optimizer=standard_optimizer("adamw", Precision.FP16), micro_batches=(2,)),
)
EXPECTED = StagePrediction(
    forward_s=1.0, backward_s=2.0, transfer_s=0.0, sync_s=0.0, update_s=0.5, memory_bytes=4e9, limit_bytes=8e9
)


def _stage(start, stop, devices, *, depth):
    return Stage(
        start=start,
        stop=stop,
        devices=devices,
        replicas=len(devices),
        recompute=start > 0,
        warmup_depth=depth,
        forward_micro_batch=2,
        backward_micro_batch=2,
    )


def _plan_file(plan):
    return PlanFile(
        problem=PROBLEM,
        plan=plan,
        predicted=Prediction(iteration_s=8.0, stages=(EXPECTED,) * len(plan.stages)),
        certificate=Certificate(status=Status.FEASIBLE, solver="even", objective_s=8.0),
        provenance=provenance_of(PROBLEM, {}, seed=0),
    )


PLAN = Plan(
    schedule=Schedule.ONE_F_ONE_B,
    micro_batch=2,
    num_microbatches=2,
    pipelines=(Pipeline(stages=(_stage(0, 1, ("a-0/0", "a-0/1"), depth=2), _stage(1, 3, ("a-1/0",), depth=1))),),
)
PLAN_FILE = _plan_file(PLAN)
LAYOUT = RankLayout.of(PLAN, PROBLEM.cluster)


def _trace(rank, spans, *, stretch=1.0, share=0.0, memory=None, zero=100.0):
    """Spans as (kind, stage, lo, hi, ready, start, end) seconds from the start of the step."""
    return StepTrace(
        rank=rank,
        spans=tuple(
            Span(rank, kind, stage, lo, hi, *(zero + stretch * time for time in times))
            for kind, stage, lo, hi, *times in spans
        ),
        start_s=zero,
        end_s=zero + stretch * max(span[-1] for span in spans),
        loss=2.5,
        run_queue_share=share,
        peak_memory_bytes=memory,
    )


def _step(*, stretch=1.0, share=0.0):
    """Rank 1 is slower than rank 0 in its forwards: 1.5 s against 1 s. The step takes 10 s."""
    first = [
        ("F", 0, 0, 2, 0, 0, 1),
        ("F", 0, 2, 4, 1, 1, 2),
        ("B", 0, 0, 2, 2, 5, 6),
        ("B", 0, 2, 4, 6, 8, 9),
        ("sync", 0, 0, 4, 9, 9, 9.5),
        ("update", 0, 0, 4, 9.5, 9.5, 10),
    ]
    second = [
        ("F", 0, 0, 2, 0, 0, 1.5),
        ("F", 0, 2, 4, 1.5, 1.5, 3),
        ("B", 0, 0, 2, 3, 5, 6),
        ("B", 0, 2, 4, 6, 8, 9),
        ("sync", 0, 0, 4, 9, 9, 9.5),
        ("update", 0, 0, 4, 9.5, 9.5, 10),
    ]
    last = [
        ("F", 1, 0, 1, 0, 1.5, 2),
        ("F", 1, 1, 2, 2, 2, 3),
        ("B", 1, 0, 2, 3, 3, 5),
        ("F", 1, 2, 4, 5, 5, 6),
        ("I", 1, 2, 4, 6, 6, 7),
        ("W", 1, 2, 4, 7, 7, 8),
        ("update", 1, 0, 4, 8, 8, 8.5),
    ]
    return [
        _trace(0, first, stretch=stretch, memory=3e9),
        _trace(1, second, stretch=stretch, share=share, memory=5e9),
        _trace(2, last, stretch=stretch),
    ]


def _record(steps, *, plan_file=PLAN_FILE, layout=LAYOUT, warmup=0, **more):
    return record_of(
        plan_file,
        steps,
        layout=layout,
        mode="real",
        device="cpu",
        started=STARTED,
        versions={"torch": "2.9", "python": "3.11"},
        warmup=warmup,
        **more,
    )


def test_times_of_a_micro_batch_are_means_over_the_replicas():
    """Two micro-batches: forwards 2 s and 3 s, so 1.25 s each; backwards 2 s, so 1 s each."""
    measured = _record([_step()]).stages[0].measured
    assert (measured.forward_s, measured.backward_s) == (1.25, 1.0)
    assert (measured.sync_s, measured.update_s) == (0.5, 0.5)


def test_times_of_a_micro_batch_are_those_of_whole_ones():
    """Stage 1: forwards of 1, 1 and 2 samples in 0.5, 1 and 1 s; backward 2 s, then 1 + 1 s in halves."""
    measured = _record([_step()]).stages[1].measured
    assert (measured.forward_s, measured.backward_s) == (1.0, 2.0)
    assert measured.sync_s is None


def test_stages_with_sizes_of_their_own_are_measured_and_predicted_in_them():
    """Forwards of 1 and backwards of 2 samples; 1 and 2 s per sample for each of two layers, backwards recompute.

    Stage 1 forwards a sample in 1.5 s, twice, and takes 7 s back: predicted 2 s, and 2 x 2 x (1 + 2) = 12 s.
    """
    stages = (_stage(0, 1, ("a-0/0",), depth=1), replace(_stage(1, 3, ("a-1/0",), depth=2), forward_micro_batch=1))
    plan = Plan(schedule=Schedule.GPIPE, micro_batch=2, num_microbatches=1, pipelines=(Pipeline(stages=stages),))
    first = _trace(0, [("F", 0, 0, 2, 0, 0, 2), ("B", 0, 0, 2, 2, 12, 16)])
    last = _trace(1, [("F", 1, 0, 1, 0, 2, 3.5), ("F", 1, 1, 2, 3.5, 3.5, 5), ("B", 1, 0, 2, 5, 5, 12)])
    run = _record([[first, last]], plan_file=_plan_file(plan), layout=RankLayout.of(plan, PROBLEM.cluster))
    stage = run.stages[1]
    assert (stage.samples_per_replica, stage.samples_per_backward) == (1.0, 2.0)
    assert (stage.measured.forward_s, stage.measured.backward_s) == (1.5, 7.0)
    assert (stage.predicted.forward_s, stage.predicted.backward_s) == (2.0, 12.0)
    assert run.stages[0].samples_per_backward is None


def test_seconds_of_a_step_are_busy_waiting_and_the_rest():
    """Rank 0: busy 4, waits 3 + 2; rank 1: busy 5, waits 2 + 2; in the mean 4.5 and 4.5 of 10 s.

    Rank 2: busy 2.5 + 4, waits 1.5, the rest is 10 - 8 s.
    """
    stages = _record([_step()]).stages
    assert [(stage.busy_s, stage.wait_s, stage.idle_s) for stage in stages] == [(4.5, 4.5, 1.0), (6.5, 1.5, 2.0)]


def test_measured_memory_is_that_of_the_fullest_device():
    first, second = (stage.measured.memory_bytes for stage in _record([_step()]).stages)
    assert (first, second) == (5e9, None)


def test_clean_steps_behind_the_warm_up_decide():
    """Warm-up of 50 s; clean steps of 10, 20 and 40 s, so 20 s; one of 30 s that is not clean."""
    stretches = ((5, 0.0), (1, 0.0), (3, 0.021), (4, 0.02), (2, 0.0))
    run = _record([_step(stretch=stretch, share=share) for stretch, share in stretches], warmup=1)
    assert [step.seconds for step in run.steps] == [50, 10, 30, 40, 20]
    assert [step.clean for step in run.steps] == [True, True, False, True, True]
    assert (run.measured_s, run.contaminated, run.typical_step) == (20.0, False, 4)
    assert run.stages[0].measured.forward_s == 2.5
    assert run.error == 1.5


def test_a_run_without_a_clean_step_is_contaminated_and_counts_all_of_them():
    run = _record([_step(), _step(stretch=2, share=0.5), _step(stretch=4, share=0.1)], warmup=1)
    assert (run.measured_s, run.contaminated) == (30.0, True)


def test_a_step_lasts_from_the_first_start_to_the_last_end_of_any_rank():
    """Ranks 0 and 1 start at 100 s, rank 2 ends at 113 s."""
    step = _step()
    late = _trace(2, [("F", 1, 0, 4, 0, 0, 4), ("B", 1, 0, 4, 4, 4, 12)], zero=101.0)
    assert _record([[*step[:2], late]]).measured_s == 13.0


def test_provenance_is_that_of_the_plan_file():
    check = CheckRecord(loss_difference=0.0, largest_gradient_difference=0.0, tolerance=1e-9, passed=True)
    run = _record([_step()], check=check)
    assert run.plan_hash == sha256_of(to_tree(PLAN_FILE))
    assert run.profile_hash == dict(PLAN_FILE.provenance.input_hashes)["profile"]
    assert (run.model, run.cluster, run.mode) == ("three", "pair", RunMode.REAL)
    assert run.started == "2026-01-31T12:00:00Z"
    assert run.versions == (("python", "3.11"), ("torch", "2.9"))
    assert (run.predicted_s, run.check) == (8.0, check)
    assert run.tokens_per_s == 4 * 8 / 10


def test_stages_say_what_a_calibration_needs():
    first, second = _record([_step()]).stages
    assert (first.start, first.stop, first.device_type, first.samples_per_replica) == (0, 1, "gpu", 1.0)
    assert (second.start, second.stop, second.recompute, second.samples_per_replica) == (1, 3, True, 2.0)


def test_stages_that_share_devices_share_the_rest():
    """One device group with two chunks: 1 + 2 s of stage 0, 1 + 2 s of stage 1, waits 1 s, 8 s in all."""
    stages = (_stage(0, 1, ("a-0/0",), depth=2), _stage(1, 3, ("a-0/0",), depth=1))
    plan = Plan(
        schedule=Schedule.INTERLEAVED,
        micro_batch=2,
        num_microbatches=1,
        pipelines=(Pipeline(stages=stages),),
        chunks=2,
    )
    spans = [("F", 0, 0, 2, 0, 0, 1), ("F", 1, 0, 2, 1, 2, 3), ("B", 1, 0, 2, 3, 3, 5), ("B", 0, 0, 2, 5, 5, 7)]
    trace = _trace(0, [*spans, ("update", 0, 0, 2, 7, 7, 8)])
    run = _record([[trace]], plan_file=_plan_file(plan), layout=RankLayout.of(plan, PROBLEM.cluster))
    assert [(stage.busy_s, stage.wait_s, stage.idle_s) for stage in run.stages] == [(3, 0, 1), (3, 1, 1)]


def test_a_loss_that_is_no_number_is_unknown():
    step = [
        StepTrace(rank=trace.rank, spans=trace.spans, start_s=100.0, end_s=110.0, loss=float("nan"))
        for trace in _step()
    ]
    assert _record([step]).steps[0].loss is None


def test_a_run_of_nothing_but_warm_up_is_refused():
    with pytest.raises(BadInputError, match="less than the 1 steps"):
        _record([_step()], warmup=1)


def test_a_stage_without_actions_is_a_fault_of_ours():
    with pytest.raises(StagecutError, match=r"stage 1: a rank of .* recorded no action F"):
        _record([[*_step()[:2], _trace(2, [("B", 1, 0, 4, 0, 0, 1)])]])


def test_lanes_are_named_after_rank_device_and_stages():
    assert LAYOUT.names[2] == "rank 2 (a-1/0, stage 1)"
