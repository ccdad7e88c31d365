"""How virtual workers are written in tables and pictures."""

from collections.abc import Sequence

from stagecut.planner.core.virtual_workers.wave_plan import WavePlan
from stagecut.planner.core.waves import Carrier, LocalStep
from stagecut.planner.cost.waves.wave_costs import WaveCosts, WorkerCosts
from stagecut.planner.report.labels import counted_label, device_label, stage_name


def worker_kinds(costs: WaveCosts) -> tuple[tuple[int, ...], ...]:
    """Numbers of the workers that are alike in all but their devices, each kind in the order of its first worker."""
    kinds: dict[object, list[int]] = {}
    for number, own in enumerate(costs.workers):
        kinds.setdefault(_shape(own), []).append(number)
    return tuple(map(tuple, kinds.values()))


def _shape(costs: WorkerCosts) -> object:
    worker = costs.worker
    stages = tuple((stage.start, stage.stop, stage.recompute, stage.warmup_depth) for stage in worker.stages)
    columns = (
        costs.forward_s,
        costs.backward_s,
        costs.update_s,
        costs.transfer_s,
        costs.memory_bytes,
        costs.limit_bytes,
    )
    return (stages, worker.minibatch, worker.in_flight, worker.wave, *(tuple(column.tolist()) for column in columns))


def kind_label(workers: Sequence[int]) -> str:
    """Workers of one kind, for example `2x  0, 3` or `1`."""
    numbers = ", ".join(map(str, workers))
    return f"{len(workers)}x  {numbers}" if len(workers) > 1 else numbers


def stage_names(plan: WavePlan) -> tuple[tuple[str, ...], ...]:
    """The number of every stage of every worker, after that of its worker where there are several, such as `1:0`."""
    several = len(plan.workers) > 1
    return tuple(
        tuple(stage_name(number, index, several=several) for index in range(worker.num_stages))
        for number, worker in enumerate(plan.workers)
    )


def wave_stage_labels(plan: WavePlan) -> tuple[tuple[str, ...], ...]:
    """Number and device of every stage of every worker, for the lanes of pictures."""
    return tuple(
        tuple(f"{index}  {device_label(stage.devices)}" for index, stage in enumerate(worker.stages))
        for worker in plan.workers
    )


def named_stage_labels(plan: WavePlan) -> tuple[tuple[str, ...], ...]:
    """Name and device of every stage of every worker, for rows that several workers share."""
    return tuple(
        tuple(f"{name}  {device_label(stage.devices)}" for name, stage in zip(names, worker.stages, strict=True))
        for names, worker in zip(stage_names(plan), plan.workers, strict=True)
    )


def wave_plan_label(plan: WavePlan) -> str:
    """The choices that hold for a whole plan, in one line."""
    flights = sorted({worker.in_flight for worker in plan.workers})
    waves = sorted({worker.wave for worker in plan.workers})
    sizes = sorted({worker.minibatch for worker in plan.workers})
    by_wave = plan.local_step is LocalStep.WAVE
    carried = f"{plan.shards} parameter servers" if plan.carrier is Carrier.PARAMETER_SERVER else "delayed all-reduce"
    parts = [
        counted_label(len(plan.workers), "virtual worker"),
        f"N_m = {_listed(flights)}",
        *([f"waves of {_listed(waves)}"] if waves != flights else []),
        f"minibatches of {_listed(sizes)}",
        *([f"D = {plan.clock_distance}", carried] if len(plan.workers) > 1 else []),
        "one step a wave" if by_wave else "a step after each minibatch",
    ]
    return ", ".join(parts)


def _listed(values: Sequence[int]) -> str:
    return ", ".join(map(str, values))
