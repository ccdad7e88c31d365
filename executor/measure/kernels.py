"""How fast a device multiplies matrices and updates weights, the two figures that no model profile holds."""

import time
from collections.abc import Callable, Sequence

import torch
from torch import nn

from stagecut.executor.machine.run_queue import RunQueue
from stagecut.executor.measure.timings import Timing, done_share
from stagecut.executor.play.clock import clock_for
from stagecut.executor.play.optimizers import DEFAULT
from stagecut.planner.core.job import standard_optimizer
from stagecut.planner.core.precision import Precision

NUMBER_FORMATS = {Precision.FP32: torch.float32, Precision.FP16: torch.float16, Precision.BF16: torch.bfloat16}
PART_SIZE = 1_048_576
"""Parameters per synthetic tensor: a matrix in a block of a small transformer."""
WARMUP = 2
TIME_LIMIT_S = 10.0
"""Per measurement, so that slow number formats finish."""


def matmul_timings(device: torch.device, precision: Precision, *, side: int, repetitions: int) -> list[Timing]:
    """Timings of one product of two square matrices, 2 side^3 FLOPs."""
    left, right = (torch.randn((side, side), device=device).to(NUMBER_FORMATS[precision]) for _ in range(2))
    return timed(lambda: left @ right, device, repetitions=repetitions)


def update_timings(parameters: Sequence[nn.Parameter], device: torch.device, *, repetitions: int) -> list[Timing]:
    """Timings of one step of the default optimizer, AdamW, on these parameters."""
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    optimizer = DEFAULT(parameters)
    return timed(optimizer.step, device, repetitions=repetitions)


def update_bandwidth_bytes_per_s(num_params: int, update_s: float) -> float:
    """The memory bandwidth at which the cost model predicts this update time, for AdamW in fp32.

    Weights and state are read and written, gradients are read.
    """
    optimizer = standard_optimizer("adamw", Precision.FP32)
    touched_bytes = 2 * (optimizer.weight_bytes + optimizer.state_bytes) + optimizer.gradient_bytes
    return num_params * touched_bytes / update_s


def synthetic_parameters(count: int, device: torch.device) -> list[nn.Parameter]:
    """`count` parameters, in tensors of ordinary size."""
    sizes = [PART_SIZE] * (count // PART_SIZE) + ([count % PART_SIZE] if count % PART_SIZE else [])
    return [nn.Parameter(torch.zeros(size, device=device)) for size in sizes]


def timed(work: Callable[[], object], device: torch.device, *, repetitions: int) -> list[Timing]:
    """Time some work repeatedly, until enough timings are clean or time is up."""
    clock, queue = clock_for(device), RunQueue()
    for _ in range(WARMUP):
        work()
    timings: list[Timing] = []
    end_s = time.monotonic() + TIME_LIMIT_S
    while done_share(timings, repetitions) < 1 and (not timings or time.monotonic() < end_s):
        queue_mark, start = queue.mark(), clock.mark()
        work()
        end = clock.mark()
        seconds = clock.resolve(end) - clock.resolve(start)
        timings.append(Timing(seconds=(seconds,), run_queue_share=queue.share_since(queue_mark)))
    return timings
