"""Refusals of jobs that a planner cannot express."""

from collections.abc import Sequence

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule


def require_schedules(problem: Problem, solver: str, schedules: Sequence[Schedule]) -> None:
    """Raise UnsupportedError unless the job allows one of the schedules that the planner supports."""
    if not set(schedules) & set(problem.job.schedules):
        raise UnsupportedError(
            f"solver {solver!r}: supports only {'schedule' if len(schedules) == 1 else 'schedules'} "
            f"{' and '.join(schedules)}, but the job allows {', '.join(problem.job.schedules)}; "
            f"allow {' or '.join(schedules)}"
        )


def require_equal_sizes(problem: Problem, solver: str) -> None:
    """Raise UnsupportedError if the job allows unequal micro-batches: the bound would not hold for them."""
    if problem.job.unequal:
        raise UnsupportedError(
            f"solver {solver!r}: does not support unequal micro-batches; use 'milp' with all rows, or list equal sizes"
        )


def require_whole_stages(problem: Problem, solver: str, supporting: Sequence[str]) -> None:
    """Raise UnsupportedError if the job allows operators to be divided each in its own way."""
    if problem.job.sharding is not None:
        raise UnsupportedError(
            f"solver {solver!r}: does not divide operators, but the job allows sharding; "
            f"use {', '.join(map(repr, supporting))}, or sharding none"
        )


def require_single_devices(problem: Problem, solver: str) -> None:
    """Raise UnsupportedError unless the job allows stages without tensor parallelism."""
    if 1 not in problem.tensor_parallel_degrees:
        degrees = ", ".join(map(str, problem.tensor_parallel_degrees))
        raise UnsupportedError(
            f"solver {solver!r}: does not support tensor parallelism, but the job requires degree {degrees}; allow 1"
        )
