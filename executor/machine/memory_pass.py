"""A fixed pass over main memory, whose speed shows whether other programs use it.

The processors of a machine share its memory bandwidth, those of a virtual machine even with strangers. Their traffic
does not show in any run queue, but slows down layers that stream through memory.
"""

import time
from functools import cache

import torch
from torch import Tensor

NUMBERS = 4_000_000
"""Elements in each of two tensors; together 32 MB, more than caches hold."""
ROUNDS = 4


def memory_pass_s() -> float:
    """Seconds of some sums of large tensors, on this process's share of the processors."""
    left, right = _tensors()
    started_s = time.monotonic()
    for _ in range(ROUNDS):
        torch.add(left, right, out=right)
    return time.monotonic() - started_s


@cache
def _tensors() -> tuple[Tensor, Tensor]:
    return torch.zeros(NUMBERS), torch.zeros(NUMBERS)
