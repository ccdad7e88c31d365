"""A fixed pass over main memory: how fast it is tells whether others use it.

Processors of one machine share its memory, those of a virtual machine with strangers. Their traffic shows
in no run queue, but makes layers that stream through memory slower.
"""

import time
from functools import cache

import torch
from torch import Tensor

NUMBERS = 4_000_000
"""Of each of two tensors: 32 MB, more than caches hold."""
ROUNDS = 4


def memory_pass_s() -> float:
    """Seconds of some sums of large tensors, on this process' share of the processors."""
    left, right = _tensors()
    started_s = time.monotonic()
    for _ in range(ROUNDS):
        torch.add(left, right, out=right)
    return time.monotonic() - started_s


@cache
def _tensors() -> tuple[Tensor, Tensor]:
    return torch.zeros(NUMBERS), torch.zeros(NUMBERS)
