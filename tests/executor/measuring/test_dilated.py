"""Dilated runs: real gradients and messages, and times no shorter than simulated."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from stagecut import executor
from stagecut.executor.dilated.dilation import dilation, dilation_for
from stagecut.executor.dilated.planned_times import PlannedTimes
from stagecut.executor.execution_plan import Training
from stagecut.executor.manual_plan import plan_of
from stagecut.executor.play.build import chain_of
from stagecut.executor.play.reference import reference_step
from stagecut.executor.schedule.rank_layout import RankLayout, message_sizes
from stagecut.executor.team import Team
from stagecut.models import build_cluster, build_model
from stagecut.planner.analysis.prediction import plan_file_of
from stagecut.planner.analysis.prediction import play as simulated
from stagecut.planner.core.job import Job, standard_optimizer
from stagecut.planner.core.precision import Precision
from stagecut.planner.core.problem import Problem
from stagecut.planner.core.schedule import Schedule
from stagecut.planner.cost.plan_costs import TaskKind
from stagecut.planner.io.files.plan_file import provenance_of
from stagecut.planner.simulator.action_lists import plan_actions, stage_actions
from stagecut.planner.solvers.registry import run
from stagecut.planner.solvers.search.options import SolveOptions
from tests.executor import pool

WIDTH, SEED = 4, 3
PROCESSOR = torch.device("cpu")
SGD = partial(torch.optim.SGD, lr=0.0)
NO_FASTER = 0.98
"""Least share of the simulated time: nothing can be faster, but clocks are read one after another."""
EXACT = 1e-12
"""Difference of gradients in float64."""


def times_of(plan, **changes):
    """Actions of 6 and 10 ms, messages of 3 ms, all-reduces of 8 ms, two links that several flows share."""
    num_stages = len(plan.stages)
    times = PlannedTimes(
        micro_batch=plan.micro_batch,
        forward_s=(0.006,) * num_stages,
        backward_s=(0.010,) * num_stages,
        transfer_s=(0.003,) * (num_stages - 1),
        sync_s=(0.008,) * num_stages,
        update_s=(0.004,) * num_stages,
        routes=tuple((("a",), ("b",), ())[flow % 3] for flow in range(3 * num_stages - 2)),
    )
    return replace(times, **changes)


def chain_for(plan, profile=None):
    """Small products in double precision, named as in the profile."""
    layer = partial(nn.Linear, WIDTH, WIDTH, dtype=torch.float64)
    return chain_of([layer] * plan.stages[-1].stop, profile)


def batch_of(plan):
    samples = len(plan.pipelines) * plan.num_microbatches * plan.micro_batch
    inputs = torch.randn(samples, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(SEED))
    return inputs, inputs.flip(1)


def worst_difference(pipelines, chain, batch):
    """Largest difference between some ranks' gradients and those of a single process."""
    expected = reference_step(chain, batch, nn.functional.mse_loss, seed=SEED).gradients
    own = [pair for pipeline in pipelines for pair in pipeline.named_parameters().items()]
    return max(float((parameter.grad.cpu() - expected[name]).abs().max()) for name, parameter in own)


def seconds_of(traces):
    """One step over all ranks."""
    return max(trace.end_s for trace in traces) - min(trace.start_s for trace in traces)


def play(plan, times, folder, *, lists=None, shares=None):
    """Two steps of a team: the gradients are right, and no step is faster than simulated."""
    lists = lists or plan_actions(plan)
    pace = dilation(times, lists, RankLayout.of(plan, shares=shares), path=folder / "links")
    training = Training(loss_fn=nn.functional.mse_loss, optimizer=SGD, seed=SEED)
    team = Team(plan, chain_for(plan), training, actions=lists, shares=shares, pace=pace, device=PROCESSOR)
    for _ in range(2):
        team.step(batch_of(plan))
        assert worst_difference(team.pipelines, chain_for(plan), batch_of(plan)) < EXACT
        traces = [pipeline.last_step for pipeline in team.pipelines]
        assert seconds_of(traces) >= NO_FASTER * times.iteration_s(lists, message_sizes(plan))
    return team


@pytest.mark.parametrize("schedule", list(Schedule))
def test_every_schedule_takes_as_long_as_simulated(schedule, tmp_path):
    """Two device groups, with two chunks each under `interleaved`."""
    chunks = 2 if schedule is Schedule.INTERLEAVED else 1
    plan = plan_of(range(2 * chunks + 1), schedule=schedule, chunks=chunks)
    play(plan, times_of(plan), tmp_path)


def test_replicas_of_unequal_shares_take_as_long_as_simulated(tmp_path):
    """A replica may have no sample of a micro-batch."""
    plan = plan_of((0, 1, 2), micro_batch=3, num_microbatches=3, replicas=(2, 2))
    play(plan, times_of(plan), tmp_path, shares=((1, 2), (3, 1)))


def test_two_pipelines_take_as_long_as_simulated(tmp_path):
    plan = plan_of((0, 1, 2), num_pipelines=2)
    play(plan, times_of(plan), tmp_path)


def test_a_halved_warm_up_takes_as_long_as_simulated(tmp_path):
    """Half forwards of 4 ms, more than half of 6."""
    plan = plan_of((0, 1, 2, 3))
    halved = [stage_actions(stage, [1, 1, 2, 2, 2], [2] * 4, depth=2 * (3 - stage)) for stage in range(3)]
    own_s = {(TaskKind.FORWARD, stage, 1): 0.004 for stage in range(3)}
    play(plan, times_of(plan, own_s=own_s), tmp_path, lists=halved)


def test_sublots_that_gather_and_cut_take_as_long_as_simulated(tmp_path):
    """Eight samples; every process has a size of its own, with setups of 2 ms, and the last sublots are smaller."""
    plan = plan_of(
        (0, 1, 2, 3),
        schedule=Schedule.GPIPE,
        micro_batch=8,
        num_microbatches=1,
        replicas=(1, 2, 1),
        sizes=((3, 6), (4, 8), (2, 2)),
        messages=((5, 3), (8, 1)),
    )
    computing = (TaskKind.FORWARD, TaskKind.BACKWARD)
    own_s = {(kind, stage, size): 0.002 * (1 + size) for kind in computing for stage in range(3) for size in range(9)}
    play(plan, times_of(plan, own_s=own_s), tmp_path)


def start_up_s(plan, times, folder):
    """Time from the start of a step to the first forward of the last stage: the least of three steps."""
    pace = dilation(times, plan_actions(plan), RankLayout.of(plan), path=folder / f"links-{plan.num_sliced}")
    team = Team(
        plan,
        chain_for(plan),
        Training(loss_fn=nn.functional.mse_loss, optimizer=SGD, seed=SEED),
        pace=pace,
        device=PROCESSOR,
    )
    least_s = float("inf")
    for _ in range(3):
        team.step(batch_of(plan))
        traces = [pipeline.last_step for pipeline in team.pipelines]
        first_s = min(span.start_s for trace in traces for span in trace.spans if span.stage == len(plan.stages) - 1)
        least_s = min(least_s, first_s - min(trace.start_s for trace in traces))
    return least_s


def test_slicing_halves_the_start_up_of_the_last_stage(tmp_path):
    """Forwards of 60 ms on four stages: 3 x 60 ms before, 3 x 30 ms after, and half as much again for the machine."""
    plan = plan_of(range(5))
    times = times_of(plan, forward_s=(0.06,) * 4, transfer_s=(0.0,) * 3, routes=((),) * 10)
    whole_s = start_up_s(plan, times, tmp_path)
    halved_s = start_up_s(replace(plan, num_sliced=1), times, tmp_path)
    assert whole_s >= NO_FASTER * 0.18
    assert NO_FASTER * 0.09 <= halved_s <= 0.75 * whole_s


def test_an_evaluation_is_dilated_too(tmp_path):
    """The evaluation runs between steps, which go on as before."""
    plan = plan_of((0, 1, 2))
    team = play(plan, times_of(plan), tmp_path)
    team.evaluate(batch_of(plan))
    team.step(batch_of(plan))
    assert seconds_of([pipeline.last_step for pipeline in team.pipelines]) >= NO_FASTER * times_of(plan).iteration_s(
        plan_actions(plan)
    )


def rank_of_processes(plan, folder):
    """Be one of several processes: difference of gradients, and the trace of the second step."""
    pace = dilation(times_of(plan), plan_actions(plan), RankLayout.of(plan), path=Path(folder, "links"))
    options = {"loss_fn": nn.functional.mse_loss, "optimizer": SGD, "seed": SEED, "pace": pace}
    pipeline = executor.load(plan, chain_for(plan), **options)
    for _ in range(2):
        pipeline.step(batch_of(plan))
    return worst_difference([pipeline], chain_for(plan), batch_of(plan)), pipeline.last_step


def test_processes_take_as_long_as_simulated(tmp_path):
    """Three of them, two replicas before one device."""
    plan = plan_of((0, 1, 2), replicas=(2, 1))
    answers = pool.run(rank_of_processes, plan, str(tmp_path), world_size=3)
    assert max(difference for difference, _ in answers) < EXACT
    assert seconds_of([trace for _, trace in answers]) >= NO_FASTER * times_of(plan).iteration_s(plan_actions(plan))


@pytest.fixture(scope="module")
def hetpipe_plan_file():
    """GPT-2 medium on all sixteen devices of four types, as `greedy` plans it."""
    precision = Precision.FP16
    problem = Problem(
        model=build_model("gpt2-345m", precision=precision),
        cluster=build_cluster("hetpipe-16"),
        job=Job(
            global_batch=32,
            optimizer=standard_optimizer("adamw", precision),
            precision=precision,
            micro_batches=(4,),
            replicas=(4,),
            tensor_parallel=(1,),
            pipelines=(1,),
            schedules=(Schedule.EAGER_ONE_F_ONE_B,),
        ),
    )
    result = run(problem, "greedy", SolveOptions())
    return plan_file_of(simulated(problem, result.plan), result, provenance_of(problem, {}, seed=0))


def test_a_heterogeneous_cluster_of_sixteen_devices_trains_in_one_process(hetpipe_plan_file, tmp_path):
    """An iteration of 0.4 s."""
    plan, problem = hetpipe_plan_file.plan, hetpipe_plan_file.problem
    scale = 0.4 / hetpipe_plan_file.predicted.iteration_s
    pace = dilation_for(hetpipe_plan_file, folder=tmp_path)
    chain = chain_for(plan, problem.model)
    team = Team(
        hetpipe_plan_file,
        chain,
        Training(loss_fn=nn.functional.mse_loss, optimizer=SGD, seed=SEED),
        pace=pace,
        device=PROCESSOR,
    )
    for pipeline in team.pipelines:
        pipeline.pace.time_scale = scale
    team.step(batch_of(plan))
    assert len(team.pipelines) == 16
    assert worst_difference(team.pipelines, chain, batch_of(plan)) < EXACT
    assert seconds_of([pipeline.last_step for pipeline in team.pipelines]) >= NO_FASTER * 0.4
