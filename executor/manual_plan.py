"""Hand-written plans."""

from collections.abc import Sequence

from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.schedule import Schedule, warmup_depths
from stagecut.planner.core.share import WHOLE, Share


def plan_of(  # noqa: PLR0913
    cuts: Sequence[int],
    *,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    micro_batch: int = 2,
    num_microbatches: int = 4,
    replicas: Sequence[int] = (),
    tensor_parallel: Sequence[int] = (),
    recompute: Sequence[bool] = (),
    sizes: Sequence[tuple[int, int]] = (),
    messages: Sequence[tuple[int | None, int | None]] = (),
    num_pipelines: int = 1,
    chunks: int = 1,
) -> Plan:
    """A plan whose stages are the layers between consecutive cuts, on made-up devices.

    Warm-up depths follow from the schedule; stages with sizes of their own hold at least one micro-batch.

    Parameters
    ----------
    replicas, tensor_parallel
        For each device group; 1 by default.
    recompute, sizes
        For each stage: whether it recomputes, and the samples per forward and per backward.
    messages
        For each boundary: the samples per message of activations and of gradients; None: as the stages make and
        take them.
    """
    num_stages = len(cuts) - 1
    num_groups = num_stages // chunks
    replicas = tuple(replicas) or (1,) * num_groups
    tensor_parallel = tuple(tensor_parallel) or (1,) * num_groups
    recompute = tuple(recompute) or (False,) * num_stages
    sizes = tuple(sizes) or ((micro_batch, micro_batch),) * num_stages
    depths = warmup_depths(schedule, num_stages, num_microbatches, chunks=chunks)
    messages = tuple(messages) or ((None, None),) * (num_stages - 1)
    num_samples = micro_batch * num_microbatches

    def stage(pipeline: int, index: int) -> Stage:
        group = index % num_groups
        forward, backward = sizes[index]
        held = depths[index] * micro_batch
        return Stage(
            start=cuts[index],
            stop=cuts[index + 1],
            devices=tuple(
                f"pipeline{pipeline}-group{group}/{slot}" for slot in range(replicas[group] * tensor_parallel[group])
            ),
            replicas=replicas[group],
            tensor_parallel=tensor_parallel[group],
            recompute=recompute[index],
            warmup_depth=min(-(-max(held, forward, backward) // forward), -(-num_samples // forward)),
            forward_micro_batch=forward,
            backward_micro_batch=backward,
            forward_message=messages[index][0] if index < num_stages - 1 else None,
            backward_message=messages[index - 1][1] if index > 0 else None,
        )

    return Plan(
        schedule=schedule,
        micro_batch=micro_batch,
        num_microbatches=num_microbatches,
        pipelines=tuple(
            Pipeline(stages=tuple(stage(pipeline, index) for index in range(num_stages)))
            for pipeline in range(num_pipelines)
        ),
        share=WHOLE if num_pipelines == 1 else Share(num_pipelines=num_pipelines, host_splits=(num_pipelines,)),
        chunks=chunks,
    )
