"""What a run measured, beside what was predicted."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from statistics import fmean, median

from stagecut.executor.play.trace import Span, StepTrace
from stagecut.executor.schedule.rank_layout import RankLayout
from stagecut.planner.core.messages.checks import require
from stagecut.planner.core.messages.errors import StagecutError
from stagecut.planner.core.plan import Stage
from stagecut.planner.core.run_record import (
    MAX_MEMORY_SLOWDOWN,
    MAX_RUN_QUEUE_SHARE,
    CheckRecord,
    RunMode,
    RunRecord,
    StageFigures,
    StageRecord,
    StepRecord,
    counted_steps,
    finite_or_none,
)
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.io.documents.canonical import sha256_of
from stagecut.planner.io.files.plan_file import PlanFile, input_hashes, to_tree
from stagecut.planner.io.files.plan_statements import StagePrediction
from stagecut.planner.simulator.action_lists import Op

StepTraces = Sequence[StepTrace]
"""The traces of one training step, by rank."""

FORWARD = frozenset({Op.FORWARD})
BACKWARD = frozenset({Op.BACKWARD, Op.INPUT_GRADIENT, Op.WEIGHT_GRADIENT})
BACKWARD_SAMPLES = frozenset({Op.BACKWARD, Op.INPUT_GRADIENT})
"""The weight-gradient half of a split backward covers the same samples again."""
SYNC, UPDATE = frozenset({"sync"}), frozenset({"update"})


def record_of(
    plan_file: PlanFile,
    steps: Sequence[StepTraces],
    *,
    layout: RankLayout,
    mode: str,
    device: str,
    started: datetime,
    versions: Mapping[str, str],
    warmup: int,
    check: CheckRecord | None = None,
) -> RunRecord:
    """The record of a run.

    Parameters
    ----------
    steps
        All steps, warm-up first.
    device
        Name of what the ranks ran on.
    started
        With its time zone.
    warmup
        Number of unmeasured steps at the start.

    Raises
    ------
    BadInputError
        If there is no step beyond the warm-up.
    """
    require(0 <= warmup < len(steps), "run", "warmup", f"less than the {len(steps)} steps", warmup)
    usual_s = usual_pass_s(steps)
    records = tuple(step_record(step, usual_pass_s=usual_s) for step in steps)
    counted = counted_steps(records, warmup=warmup)
    measured_s = median(records[index].seconds for index in counted)
    problem, plan = plan_file.problem, plan_file.plan
    return RunRecord(
        plan_hash=sha256_of(to_tree(plan_file)),
        profile_hash=input_hashes(problem)["profile"],
        model=problem.model.name,
        cluster=problem.cluster.name,
        device=device,
        mode=RunMode(mode),
        versions=tuple(sorted(versions.items())),
        started=started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        schedule=plan.schedule,
        micro_batch=plan.micro_batch,
        num_microbatches=plan.num_microbatches,
        num_pipelines=len(plan.pipelines),
        global_batch=problem.job.global_batch,
        sequence_length=problem.model.sequence_length,
        predicted_s=plan_file.predicted.iteration_s,
        measured_s=measured_s,
        contaminated=not records[counted[0]].clean,
        warmup=warmup,
        steps=records,
        stages=_stage_records(plan_file, [steps[index] for index in counted], layout, measured_s),
        check=check,
    )


def step_record(step: StepTraces, *, usual_pass_s: float | None = None) -> StepRecord:
    """One step over all ranks, from the first start to the last end; clean if it had the machine nearly to itself.

    Parameters
    ----------
    usual_pass_s
        Seconds of a pass over memory when no other program uses it; None: not measured.
    """
    share = max(trace.run_queue_share for trace in step)
    passes_s = [trace.memory_pass_s for trace in step if trace.memory_pass_s is not None]
    slowdown = max(passes_s) / usual_pass_s if passes_s and usual_pass_s else 1.0
    return StepRecord(
        seconds=max(trace.end_s for trace in step) - min(trace.start_s for trace in step),
        loss=finite_or_none(step[0].loss),
        run_queue_share=share,
        memory_slowdown=slowdown,
        clean=share <= MAX_RUN_QUEUE_SHARE and slowdown <= MAX_MEMORY_SLOWDOWN,
    )


def usual_pass_s(steps: Sequence[StepTraces]) -> float | None:
    """The slowest rank's pass over memory, at the fastest quarter of the steps; None if not measured."""
    passes_s = [max(own) for step in steps if (own := [t.memory_pass_s for t in step if t.memory_pass_s is not None])]
    return sorted(passes_s)[len(passes_s) // 4] if passes_s else None


def _stage_records(
    plan_file: PlanFile, steps: Sequence[StepTraces], layout: RankLayout, iteration_s: float
) -> tuple[StageRecord, ...]:
    types = {device.name: device.device_type for device in plan_file.problem.cluster.devices()}
    meters = [_Meter(steps, layout, stage) for stage in range(len(plan_file.plan.stages))]
    return tuple(
        _stage_record(stage, predicted, meters, index, device_type=types[stage.devices[0]], iteration_s=iteration_s)
        for index, (stage, predicted) in enumerate(zip(plan_file.plan.stages, _predicted(plan_file), strict=True))
    )


def _predicted(plan_file: PlanFile) -> tuple[StagePrediction, ...]:
    """What the plan states of its stages, for forwards and backwards in the sizes of each stage."""
    stated, plan = plan_file.predicted.stages, plan_file.plan
    if not plan.is_unequal:
        return stated
    own_s = CostModel(plan_file.problem).plan(plan).own_s
    return tuple(
        replace(
            predicted,
            forward_s=own_s.get((TaskKind.FORWARD, index, stage.forward_micro_batch), predicted.forward_s),
            backward_s=own_s.get((TaskKind.BACKWARD, index, stage.backward_micro_batch), predicted.backward_s),
        )
        for index, (stage, predicted) in enumerate(zip(plan.stages, stated, strict=True))
    )


def _stage_record(
    stage: Stage,
    predicted: StagePrediction,
    meters: Sequence["_Meter"],
    index: int,
    *,
    device_type: str,
    iteration_s: float,
) -> StageRecord:
    own = meters[index]
    differs = stage.backward_micro_batch != stage.forward_micro_batch
    taken_s = sum(meter.busy_s + meter.wait_s for meter in meters if meter.ranks == own.ranks)
    return StageRecord(
        start=stage.start,
        stop=stage.stop,
        devices=stage.devices,
        device_type=device_type,
        replicas=stage.replicas,
        tensor_parallel=stage.tensor_parallel,
        recompute=stage.recompute,
        samples_per_replica=stage.forward_micro_batch / stage.replicas,
        samples_per_backward=stage.backward_micro_batch / stage.replicas if differs else None,
        predicted=StageFigures(
            forward_s=predicted.forward_s,
            backward_s=predicted.backward_s,
            sync_s=predicted.sync_s,
            update_s=predicted.update_s,
            memory_bytes=predicted.memory_bytes,
        ),
        measured=own.figures(stage.forward_micro_batch, stage.backward_micro_batch),
        busy_s=own.busy_s,
        wait_s=own.wait_s,
        idle_s=max(0.0, iteration_s - taken_s),
    )


class _Meter:
    """Measured seconds of one stage: the mean over its ranks in each step, then the median over the steps."""

    def __init__(self, steps: Sequence[StepTraces], layout: RankLayout, stage: int) -> None:
        self.ranks = tuple(role.rank for role in layout.roles if stage in role.stages)
        self._stage, self._steps = stage, steps
        self.busy_s = self._median(lambda spans: _seconds(spans, FORWARD | BACKWARD))
        self.wait_s = self._median(lambda spans: sum(span.wait_s for span in spans))

    def figures(self, forward: int, backward: int) -> StageFigures:
        """Times of a forward and of a backward of so many samples each."""
        return StageFigures(
            forward_s=forward * self._median(lambda spans: self._per_sample(spans, FORWARD, FORWARD)),
            backward_s=backward * self._median(lambda spans: self._per_sample(spans, BACKWARD, BACKWARD_SAMPLES)),
            sync_s=self._median(lambda spans: _seconds(spans, SYNC)) if self._ran(SYNC) else None,
            update_s=self._median(lambda spans: _seconds(spans, UPDATE)) if self._ran(UPDATE) else None,
            memory_bytes=self._memory_bytes(),
        )

    def _median(self, value: Callable[[list[Span]], float]) -> float:
        return median(fmean(value(self._spans(step[rank])) for rank in self.ranks) for step in self._steps)

    def _spans(self, trace: StepTrace) -> list[Span]:
        return [span for span in trace.spans if span.stage == self._stage]

    def _ran(self, kinds: frozenset[str]) -> bool:
        spans = (span for step in self._steps for rank in self.ranks for span in self._spans(step[rank]))
        return any(span.kind in kinds for span in spans)

    def _per_sample(self, spans: list[Span], kinds: Iterable[str], counted: Iterable[str]) -> float:
        """Seconds per sample of the largest actions: smaller ones, such as halves, take more than their part."""
        largest = max((span.hi - span.lo for span in spans if span.kind in counted), default=0)
        if largest == 0:
            names = ", ".join(sorted(counted))
            raise StagecutError(f"stage {self._stage}: a rank of {self.ranks} recorded no action {names}")
        own = [span for span in spans if span.hi - span.lo == largest]
        return _seconds(own, kinds) / (largest * sum(span.kind in counted for span in own))

    def _memory_bytes(self) -> float | None:
        """Peak memory of the fullest device."""
        peaks = [step[rank].peak_memory_bytes for step in self._steps for rank in self.ranks]
        return max((peak for peak in peaks if peak is not None), default=None)


def _seconds(spans: Iterable[Span], kinds: Iterable[str]) -> float:
    return sum(span.end_s - span.start_s for span in spans if span.kind in kinds)
