"""What planners refuse."""

from dataclasses import replace

import pytest

from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.solvers.search.refusals import require_schedules, require_single_devices
from tests.catalogue import chain, job, one_server

PROBLEM = Problem(model=chain(1, {"gpu": 1.0}, tensor_parallel_bytes=1.0), cluster=one_server("gpu", 2), job=job(1))


def test_one_known_schedule_is_enough():
    both = replace(PROBLEM.job, schedules=(Schedule.GPIPE, Schedule.ONE_F_ONE_B))
    require_schedules(replace(PROBLEM, job=both), "planner", (Schedule.ONE_F_ONE_B,))


def test_jobs_with_none_of_the_schedules_are_refused():
    """The job allows 1F1B."""
    message = "solver 'planner': supports only schedules gpipe and interleaved, but the job allows 1f1b; allow gpipe or"
    with pytest.raises(UnsupportedError, match=message):
        require_schedules(PROBLEM, "planner", (Schedule.GPIPE, Schedule.INTERLEAVED))


def test_degrees_of_tensor_parallelism_must_include_one():
    """The default includes it."""
    require_single_devices(PROBLEM, "planner")
    pairs = replace(PROBLEM, job=replace(PROBLEM.job, tensor_parallel=(2,)))
    with pytest.raises(UnsupportedError, match=r"solver 'planner': .* requires degree 2; allow 1"):
        require_single_devices(pairs, "planner")
