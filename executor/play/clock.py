"""Clocks for actions: the host's, or a GPU stream's, since the host runs ahead of the GPU."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Mark = Any
"""A point in time, resolved to seconds after the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Marks points in time and turns them into seconds of `time.monotonic`."""

    mark: Callable[[], Mark]
    resolve: Callable[[Mark], float]
    """May wait for the device."""


def clock_for(device: torch.device) -> Clock:
    """The clock for work on a device."""
    if device.type == "cuda":
        return _cuda_clock(device)
    return Clock(mark=time.monotonic, resolve=float)


def _cuda_clock(device: torch.device) -> Clock:
    """Events on the current stream; seconds count from an event whose host time is known."""
    origin = torch.cuda.Event(enable_timing=True)
    torch.cuda.synchronize(device)
    origin.record()
    origin_s = time.monotonic()

    def mark() -> torch.cuda.Event:
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def resolve(event: torch.cuda.Event) -> float:
        event.synchronize()
        passed_ms: float = origin.elapsed_time(event)
        return origin_s + 1e-3 * passed_ms

    return Clock(mark=mark, resolve=resolve)
