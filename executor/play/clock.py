"""Times of actions: of the host, or of a GPU's stream, where the host runs ahead of the work."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

Mark = Any
"""A point in time, to be resolved when the step is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """Marks points in time and turns them into seconds of `time.monotonic`."""

    mark: Callable[[], Mark]
    resolve: Callable[[Mark], float]
    """May wait for the device."""


def clock_for(device: torch.device) -> Clock:
    """The clock of the work on a device."""
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
