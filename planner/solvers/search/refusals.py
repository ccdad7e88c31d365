"""Jobs that a planner refuses, since it cannot express what they ask for."""

from collections.abc import Sequence

from stagecut.planner.core.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule


def require_schedules(problem: Problem, solver: str, schedules: Sequence[Schedule]) -> None:
    """Accept jobs that allow one of the schedules that a planner knows.

    Raises
    ------
    UnsupportedError
        If the job allows none of them.
    """
    if not set(schedules) & set(problem.job.schedules):
        raise UnsupportedError(
            f"solver {solver!r}: it knows {'schedule' if len(schedules) == 1 else 'schedules'} "
            f"{' and '.join(schedules)} only, and the job allows {', '.join(problem.job.schedules)}; "
            f"allow {' or '.join(schedules)}"
        )


def require_single_devices(problem: Problem, solver: str) -> None:
    """Accept jobs that allow stages without tensor parallelism, for a planner that knows no others.

    Raises
    ------
    UnsupportedError
        If the job does not.
    """
    if 1 not in problem.tensor_parallel_degrees:
        degrees = ", ".join(map(str, problem.tensor_parallel_degrees))
        raise UnsupportedError(
            f"solver {solver!r}: it knows no tensor parallelism, and the job asks for a degree of {degrees}; allow 1"
        )
