"""A plan of the catalogue in dilated mode."""

import pytest

from stagecut.executor.dilated.dilation import dilation_for
from stagecut.models import build_cluster, build_model
from stagecut.planner.analysis.prediction import plan_file_of, play
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions


@pytest.fixture(scope="session")
def catalogue_plan_file():
    """gpt-mini on four unlike pairs of GPUs, as `greedy` plans it."""
    precision = Precision.FP16
    job = Job(global_batch=32, optimizer=standard_optimizer("adamw", precision), precision=precision)
    cluster = build_cluster("mixed-server-8")
    problem = Problem(model=build_model("gpt-mini", precision=precision), cluster=cluster, job=job)
    result = run(problem, "greedy", SolveOptions())
    return plan_file_of(play(problem, result.plan), result, provenance_of(problem, {}, seed=0))


@pytest.fixture
def dilated_pace(catalogue_plan_file, tmp_path):
    """A plan file and its dilation, which makes the paces of its ranks."""
    return catalogue_plan_file, dilation_for(catalogue_plan_file, folder=tmp_path)
