"""Random plans for small chains of layers."""

import random
from collections.abc import Sequence
from dataclasses import replace

from stagecut.executor.manual_plan import plan_of
from stagecut.planner.core.plan import Pipeline, Plan, Stage
from stagecut.planner.core.schedule import Schedule


def random_plan(draw: random.Random, *, num_layers: int, max_ranks: int) -> Plan:
    """A plan of one to four stages with a bit of everything."""
    while True:
        plan = _attempt(draw, num_layers)
        if sum(len(stage.devices) for pipeline in plan.pipelines for stage in _groups(plan, pipeline)) <= max_ranks:
            return plan


def _groups(plan: Plan, pipeline: Pipeline) -> Sequence[Stage]:
    return pipeline.stages[: len(pipeline.stages) // plan.chunks]


def _attempt(draw: random.Random, num_layers: int) -> Plan:
    return unequal_plan(draw, num_layers=num_layers) if draw.random() < 0.2 else _with_micro_batches(draw, num_layers)


def unequal_plan(draw: random.Random, *, num_layers: int) -> Plan:
    """A flush of two to four stages whose computations and messages have sizes of their own."""
    num_stages, num_samples = draw.choice((2, 3, 4)), draw.randint(3, 13)

    def message() -> int | None:
        return draw.choice((None, draw.randint(1, num_samples)))

    return plan_of(
        (0, *sorted(draw.sample(range(1, num_layers), num_stages - 1)), num_layers),
        schedule=Schedule.GPIPE,
        micro_batch=num_samples,
        num_microbatches=1,
        replicas=[draw.choice((1, 1, 2, 3)) for _ in range(num_stages)],
        tensor_parallel=[draw.choice((1, 1, 1, 2)) for _ in range(num_stages)],
        recompute=[draw.random() < 0.3 for _ in range(num_stages)],
        sizes=[_sublots(draw, num_samples) for _ in range(num_stages)],
        messages=[(message(), message()) for _ in range(num_stages - 1)],
        num_pipelines=draw.choice((1, 1, 1, 2)),
    )


def _sublots(draw: random.Random, num_samples: int) -> tuple[int, int]:
    """Samples per forward and per backward, which is a union of forwards."""
    forward = draw.randint(1, num_samples)
    return forward, draw.choice([num_samples, *range(forward, num_samples, forward)])


def _with_micro_batches(draw: random.Random, num_layers: int) -> Plan:
    schedule = draw.choice(list(Schedule))
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    num_groups = draw.choice((1, 2)) if chunks == 2 else draw.choice((1, 2, 3, 4))
    num_stages = num_groups * chunks
    inner = sorted(draw.sample(range(1, num_layers), num_stages - 1))
    num_microbatches = num_groups * draw.choice((1, 2)) if chunks == 2 else draw.choice((1, 2, 3, 5))
    micro_batch = draw.choice((2, 4, 6))
    unequal = chunks == 1 and draw.random() < 0.3
    sliced = chunks == 1 and not unequal and draw.random() < 0.4
    plan = plan_of(
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
    return replace(plan, num_sliced=draw.randint(1, num_microbatches)) if sliced else plan


def _sizes(draw: random.Random, micro_batch: int) -> tuple[int, int]:
    """Forward and backward micro-batch: a backward takes whole forwards."""
    forward = draw.choice([size for size in (1, 2, micro_batch) if micro_batch % size == 0])
    return forward, draw.choice([size for size in (forward, micro_batch) if size % forward == 0])
