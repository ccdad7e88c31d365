"""Random plans for small chains of layers, without a planner."""

import random
from collections.abc import Sequence

from planner.core.plan import Pipeline, Plan, Stage
from planner.core.schedule import Schedule, warmup_depths
from planner.core.share import WHOLE, Share


def plan_of(
    cuts: Sequence[int],
    *,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    micro_batch: int = 2,
    num_microbatches: int = 4,
    replicas: Sequence[int] = (),
    tensor_parallel: Sequence[int] = (),
    recompute: Sequence[bool] = (),
    sizes: Sequence[tuple[int, int]] = (),
    num_pipelines: int = 1,
    chunks: int = 1,
) -> Plan:
    """A plan whose stages are the layers between consecutive cuts.

    Parameters
    ----------
    replicas, tensor_parallel
        By device group; ones by default.
    recompute, sizes
        By stage: whether it recomputes, samples of its forwards and backwards.
    """
    num_stages = len(cuts) - 1
    num_groups = num_stages // chunks
    replicas = tuple(replicas) or (1,) * num_groups
    tensor_parallel = tuple(tensor_parallel) or (1,) * num_groups
    recompute = tuple(recompute) or (False,) * num_stages
    sizes = tuple(sizes) or ((micro_batch, micro_batch),) * num_stages
    depths = warmup_depths(schedule, num_stages, num_microbatches, chunks=chunks)
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
            warmup_depth=min(-(-max(held, forward, backward) // forward), num_samples // forward),
            forward_micro_batch=forward,
            backward_micro_batch=backward,
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


def random_plan(draw: random.Random, *, num_layers: int, max_ranks: int) -> Plan:
    """A plan of one to four stages with a bit of everything."""
    while True:
        plan = _attempt(draw, num_layers)
        if sum(len(stage.devices) for pipeline in plan.pipelines for stage in _groups(plan, pipeline)) <= max_ranks:
            return plan


def _groups(plan: Plan, pipeline: Pipeline) -> Sequence[Stage]:
    return pipeline.stages[: len(pipeline.stages) // plan.chunks]


def _attempt(draw: random.Random, num_layers: int) -> Plan:
    schedule = draw.choice(list(Schedule))
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    num_groups = draw.choice((1, 2)) if chunks == 2 else draw.choice((1, 2, 3, 4))
    num_stages = num_groups * chunks
    inner = sorted(draw.sample(range(1, num_layers), num_stages - 1))
    num_microbatches = num_groups * draw.choice((1, 2)) if chunks == 2 else draw.choice((1, 2, 3, 5))
    micro_batch = draw.choice((2, 4, 6))
    unequal = chunks == 1 and draw.random() < 0.3
    return plan_of(
        (0, *inner, num_layers),
        schedule=schedule,
        micro_batch=micro_batch,
        num_microbatches=num_microbatches,
        replicas=[draw.choice((1, 1, 2, 3)) for _ in range(num_groups)],
        tensor_parallel=[draw.choice((1, 1, 1, 2)) for _ in range(num_groups)],
        recompute=[draw.random() < 0.3 for _ in range(num_stages)],
        sizes=[_sizes(draw, micro_batch) for _ in range(num_stages)] if unequal else (),
        num_pipelines=draw.choice((1, 1, 2)),
        chunks=chunks,
    )


def _sizes(draw: random.Random, micro_batch: int) -> tuple[int, int]:
    """Forward and backward micro-batch: a backward takes whole forwards."""
    forward = draw.choice([size for size in (1, 2, micro_batch) if micro_batch % size == 0])
    return forward, draw.choice([size for size in (forward, micro_batch) if size % forward == 0])
