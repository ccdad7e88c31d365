"""Processes or threads, and whether memory is enough for them."""

from dataclasses import replace

import pytest

from stagecut.executor.execution_plan import ExecutionPlan, Training
from stagecut.executor.run.host_memory import check_memory, needed_memory_bytes
from stagecut.executor.run.options import RunOptions
from stagecut.executor.run.preflight import check_run, runs_together
from stagecut.models import build_cluster, build_model
from stagecut.planner.analysis.prediction import plan_file_of, play
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.messages.errors import BadInputError
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.run_record import RunMode
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions

STAND_INS = RunOptions(num_steps=1, warmup=0, mode=RunMode.DILATED, stand_ins=True, device="cpu")
LAYERS = replace(STAND_INS, stand_ins=False)


@pytest.fixture(scope="module")
def planned():
    """GPT-2 medium on sixteen GPUs, two of which share every replica."""
    precision = Precision.FP16
    job = Job(
        global_batch=32,
        optimizer=standard_optimizer("adamw", precision),
        precision=precision,
        tensor_parallel=(2,),
    )
    problem = Problem(model=build_model("gpt2-345m", precision=precision), cluster=build_cluster("hetpipe-16"), job=job)
    result = run(problem, "greedy", SolveOptions())
    plan_file = plan_file_of(play(problem, result.plan), result, provenance_of(problem, {}, seed=0))
    return plan_file, lambda options: ExecutionPlan.of(plan_file, options.chain(plan_file), Training())


@pytest.mark.parametrize(
    ("options", "together"), [(STAND_INS, True), (LAYERS, False), (replace(LAYERS, mode=RunMode.REAL), False)]
)
def test_dilated_runs_are_threads_unless_layers_are_divided(planned, options, together):
    _plan_file, execution_of = planned
    assert runs_together(execution_of(options), options) is together


@pytest.mark.parametrize("chosen", [True, False])
def test_the_user_may_choose_between_threads_and_processes(planned, chosen):
    assert check_run(planned[0], STAND_INS, one_process=chosen).together is chosen


def test_real_layers_take_what_was_planned_for_them_and_stand_ins_next_to_nothing(planned):
    """355 M parameters at 16 bytes are 5.7 GB at least, a copy on every replica; threads less than a GB."""
    plan_file, execution_of = planned
    threads = needed_memory_bytes(plan_file, execution_of(STAND_INS), STAND_INS, together=True)
    processes = needed_memory_bytes(plan_file, execution_of(STAND_INS), STAND_INS, together=False)
    layers = needed_memory_bytes(plan_file, execution_of(LAYERS), LAYERS, together=False)
    assert threads < 1e9 < processes < layers - 5.6e9


def test_a_dilated_run_that_does_not_fit_is_refused_with_what_would_help(planned):
    plan_file, execution_of = planned
    with pytest.raises(BadInputError, match="only 1 GB are free; omit --real-layers") as fault:
        check_memory(plan_file, execution_of(LAYERS), LAYERS, together=False, free_bytes=1e9)
    assert "16 ranks as processes, with the model's layers, take about" in str(fault.value)
    with pytest.raises(BadInputError, match="only 1 GB are free; omit --own-processes"):
        check_memory(plan_file, execution_of(STAND_INS), STAND_INS, together=False, free_bytes=1e9)


def test_a_dilated_run_that_fits_and_unknown_memory_are_not_refused(planned):
    plan_file, execution_of = planned
    for free_bytes in (1e9, None):
        check_memory(plan_file, execution_of(STAND_INS), STAND_INS, together=True, free_bytes=free_bytes)
