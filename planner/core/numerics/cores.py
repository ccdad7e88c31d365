"""Processor cores."""

import os


def usable_cores() -> int:
    """How many this process may use, which can be fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
