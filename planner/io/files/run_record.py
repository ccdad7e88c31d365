"""Records of runs as files."""

from pathlib import Path

from stagecut.planner.core.run_record import (
    CheckRecord,
    DilationRecord,
    RunRecord,
    StageFigures,
    StageRecord,
    StepRecord,
    finite_or_none,
)
from stagecut.planner.io.documents.canonical import Tree
from stagecut.planner.io.documents.tree import read_document
from stagecut.planner.io.documents.validate import validate
from stagecut.planner.io.files.run_entry import (
    CheckRecordEntry,
    DilationEntry,
    RunFile,
    StageFiguresEntry,
    StageRecordEntry,
    StepRecordEntry,
)


def read_run(path: str | Path) -> RunRecord:
    """Read the record of one run; rates and the error are derived again.

    Raises
    ------
    BadInputError
        With every fault of the file.
    """
    document = read_document(path)
    return document.complaints.finish(validate(document, RunFile, kind="run"), build_run)


def build_run(entry: RunFile) -> RunRecord:
    """The core data of an entry."""
    return RunRecord(
        plan_hash=entry.plan_hash,
        profile_hash=entry.profile_hash,
        model=entry.model,
        cluster=entry.cluster,
        device=entry.device,
        mode=entry.mode,
        versions=tuple(sorted(entry.versions.items())),
        started=entry.started,
        schedule=entry.schedule,
        micro_batch=entry.micro_batch,
        num_microbatches=entry.num_microbatches,
        num_pipelines=entry.num_pipelines,
        global_batch=entry.global_batch,
        sequence_length=entry.sequence_length,
        predicted_s=entry.predicted_s,
        measured_s=entry.measured_s,
        contaminated=entry.contaminated,
        warmup=entry.warmup,
        steps=tuple(_step(step) for step in entry.steps),
        stages=tuple(_stage(stage) for stage in entry.stages),
        check=None if entry.check is None else _check(entry.check),
        dilation=None if entry.dilation is None else _dilation(entry.dilation),
    )


def to_tree(run: RunRecord) -> Tree:
    """A record as a file holds it."""
    return {
        "schema": 1,
        "plan_hash": run.plan_hash,
        "profile_hash": run.profile_hash,
        "model": run.model,
        "cluster": run.cluster,
        "device": run.device,
        "mode": str(run.mode),
        "versions": dict(run.versions),
        "started": run.started,
        "schedule": str(run.schedule),
        "micro_batch": run.micro_batch,
        "num_microbatches": run.num_microbatches,
        "num_pipelines": run.num_pipelines,
        "global_batch": run.global_batch,
        "sequence_length": run.sequence_length,
        "predicted_s": float(run.predicted_s),
        "measured_s": float(run.measured_s),
        "error": run.error,
        "contaminated": run.contaminated,
        "warmup": run.warmup,
        "samples_per_s": run.samples_per_s,
        "tokens_per_s": run.tokens_per_s,
        "steps": [_step_tree(step) for step in run.steps],
        "stages": [_stage_tree(stage) for stage in run.stages],
        "check": None if run.check is None else _check_tree(run.check),
        "dilation": None if run.dilation is None else _dilation_tree(run.dilation),
    }


def _step(entry: StepRecordEntry) -> StepRecord:
    return StepRecord(
        seconds=entry.seconds,
        loss=entry.loss,
        run_queue_share=entry.run_queue_share,
        memory_slowdown=entry.memory_slowdown,
        clean=entry.clean,
    )


def _step_tree(step: StepRecord) -> Tree:
    return {
        "seconds": float(step.seconds),
        "loss": step.loss,
        "run_queue_share": float(step.run_queue_share),
        "memory_slowdown": float(step.memory_slowdown),
        "clean": step.clean,
    }


def _stage(entry: StageRecordEntry) -> StageRecord:
    return StageRecord(
        start=entry.start,
        stop=entry.stop,
        devices=tuple(entry.devices),
        device_type=entry.device_type,
        replicas=entry.replicas,
        tensor_parallel=entry.tensor_parallel,
        recompute=entry.recompute,
        samples_per_replica=entry.samples_per_replica,
        predicted=_figures(entry.predicted),
        measured=_figures(entry.measured),
        busy_s=entry.busy_s,
        wait_s=entry.wait_s,
        idle_s=entry.idle_s,
    )


def _stage_tree(stage: StageRecord) -> Tree:
    return {
        "start": stage.start,
        "stop": stage.stop,
        "devices": list(stage.devices),
        "device_type": stage.device_type,
        "replicas": stage.replicas,
        "tensor_parallel": stage.tensor_parallel,
        "recompute": stage.recompute,
        "samples_per_replica": float(stage.samples_per_replica),
        "predicted": _figures_tree(stage.predicted),
        "measured": _figures_tree(stage.measured),
        "busy_s": float(stage.busy_s),
        "wait_s": float(stage.wait_s),
        "idle_s": float(stage.idle_s),
    }


def _figures(entry: StageFiguresEntry) -> StageFigures:
    return StageFigures(
        forward_s=entry.forward_s,
        backward_s=entry.backward_s,
        sync_s=entry.sync_s,
        update_s=entry.update_s,
        memory_bytes=entry.memory_bytes,
    )


def _figures_tree(figures: StageFigures) -> Tree:
    return {
        "forward_s": float(figures.forward_s),
        "backward_s": float(figures.backward_s),
        "sync_s": figures.sync_s,
        "update_s": figures.update_s,
        "memory_bytes": figures.memory_bytes,
    }


def _check(entry: CheckRecordEntry) -> CheckRecord:
    return CheckRecord(
        loss_difference=_or_infinite(entry.loss_difference),
        largest_gradient_difference=_or_infinite(entry.largest_gradient_difference),
        tolerance=entry.tolerance,
        passed=entry.passed,
    )


def _check_tree(check: CheckRecord) -> Tree:
    return {
        "loss_difference": finite_or_none(check.loss_difference),
        "largest_gradient_difference": finite_or_none(check.largest_gradient_difference),
        "tolerance": float(check.tolerance),
        "passed": check.passed,
    }


def _dilation(entry: DilationEntry) -> DilationRecord:
    return DilationRecord(
        time_scale=entry.time_scale,
        stand_ins=entry.stand_ins,
        one_process=entry.one_process,
        late_share=entry.late_share,
    )


def _dilation_tree(dilation: DilationRecord) -> Tree:
    return {
        "time_scale": float(dilation.time_scale),
        "stand_ins": dilation.stand_ins,
        "one_process": dilation.one_process,
        "late_share": float(dilation.late_share),
    }


def _or_infinite(value: float | None) -> float:
    return float("inf") if value is None else value
