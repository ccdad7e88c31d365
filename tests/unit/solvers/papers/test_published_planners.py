"""What holds for every planner of a paper that plans for equal servers."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, given, reject, settings

from stagecut.planner.core.cluster import Cluster, Island, Server
from stagecut.planner.core.messages.errors import UnsupportedError
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.result import Status
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.cost_model import CostModel
from stagecut.planner.cost.legality import faults
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.catalogue import chain, job, kinds, one_server
from tests.property.strategies import problems

ONLY_1F1B = ("autopipe", "pipedream", "dapple", "piper", "alpa", "deepspeed-parameters")
WITH_AN_OBJECTIVE = ("autopipe", "pipedream", "dapple", "piper", "alpa")
FOR_EQUAL_SERVERS = (*ONLY_1F1B, "megatron-even")
PLAIN = Problem(model=chain(2, {"gpu": 2.0}), cluster=one_server("gpu", 2), job=job(2))


@pytest.mark.parametrize("name", WITH_AN_OBJECTIVE)
@given(problem=problems(max_layers=6))
@settings(max_examples=40)
def test_plans_are_legal_whatever_the_problem(name, problem):
    """Plans made for equal devices are legal on the real ones, and have a value in the planner's own terms."""
    problem = replace(problem, job=replace(problem.job, schedules=(Schedule.ONE_F_ONE_B,)))
    try:
        result = run(problem, name, SolveOptions())
    except UnsupportedError:
        reject()
    assert (result.plan is None) == (result.own_objective is None)
    assume(result.plan is not None)
    assert faults(CostModel(problem), result.plan) == ()


@pytest.mark.parametrize("schedule", [Schedule.GPIPE, Schedule.EAGER_ONE_F_ONE_B])
@pytest.mark.parametrize("name", ONLY_1F1B)
def test_other_schedules_are_refused(name, schedule):
    problem = replace(PLAIN, job=replace(PLAIN.job, schedules=(schedule,)))
    message = f"solver '{name}': supports only schedule 1f1b, but the job allows {schedule}; allow 1f1b"
    with pytest.raises(UnsupportedError, match=message):
        run(problem, name, SolveOptions())


@pytest.mark.parametrize("name", FOR_EQUAL_SERVERS)
def test_servers_of_several_sizes_are_refused(name):
    servers = tuple(Server(name=f"host-{size}", islands=(Island(device_type="gpu", count=size),)) for size in (1, 2))
    problem = replace(PLAIN, cluster=Cluster(name="uneven", device_types=kinds(gpu=math.inf), servers=servers))
    with pytest.raises(UnsupportedError, match=f"solver '{name}' needs servers with equally many devices"):
        run(problem, name, SolveOptions())


@pytest.mark.parametrize("name", FOR_EQUAL_SERVERS)
def test_no_time_is_no_plan(name):
    assert run(PLAIN, name, SolveOptions(time_limit_s=1e-9)).status is Status.NO_PLAN
